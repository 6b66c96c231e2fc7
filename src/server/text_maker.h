// Making the long texts of answers where no stream waits for it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "server/low_priority_pool.h"
#include "server/transport/response_writer.h"

namespace tokamak {

// Texts up to about this many bytes are made on the I/O thread, in less than a millisecond; during
// longer ones every stream would stand still.
inline constexpr size_t kShortText = 64 << 10;

// Used on the I/O thread alone, except `busy`.
class TextMaker {
 public:
  TextMaker();

  // Takes `make`, runs it on another thread and returns its text, or nothing if the client leaves
  // before. `bytes`: about how much that is.
  Awaitable<std::optional<std::string>> Make(ResponseWriter& writer, size_t bytes,
                                             std::function<std::string()>&& make);
  // Calls `on_idle` when no text is being made, which may be at once.
  void WhenIdle(std::function<void()> on_idle);
  // Ends the threads, which waits for the texts at hand.
  void Stop();
  // Whether a text is at hand, which Stop would wait for.
  bool busy() const { return pool_.longest_seconds().has_value(); }

 private:
  int making_ = 0;
  std::function<void()> on_idle_;  // until it was called
  LowPriorityPool pool_;  // not that of the requests' bodies, for which texts must not wait
};

}  // namespace tokamak
