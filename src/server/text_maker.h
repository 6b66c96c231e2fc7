// Long responses are formatted on threads of their own, so that no stream waits for them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "server/low_priority_pool.h"
#include "server/transport/response_writer.h"

namespace tokamak {

// Texts up to about this size are formatted on the I/O thread, which takes less than a millisecond.
// All streams would wait for a longer one.
inline constexpr size_t kShortText = 64 << 10;

// Used only on the I/O thread, except `busy`.
class TextMaker {
 public:
  TextMaker();

  // Calls `make` on another thread and returns its text; nullopt if the client leaves first.
  // `bytes`: about how long the text is.
  Awaitable<std::optional<std::string>> Make(ResponseWriter& writer, size_t bytes,
                                             std::function<std::string()>&& make);
  // Calls `on_idle` as soon as no text is being made, perhaps at once.
  void WhenIdle(std::function<void()> on_idle);
  // Ends the threads after their current texts.
  void Stop();
  // Returns whether a text is being made, which Stop would wait for.
  bool busy() const { return pool_.longest_seconds().has_value(); }

 private:
  int making_ = 0;
  std::function<void()> on_idle_;  // null once it was called
  LowPriorityPool pool_;           // a pool of its own: texts need not wait for requests' bodies
};

}  // namespace tokamak
