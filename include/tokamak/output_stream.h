// The output of a request, for a thread that waits for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tokamak/request.h"

namespace tokamak {

class Engine;

// Made by Engine::Stream. The engine must live longer. Not thread-safe.
class OutputStream {
 public:
  OutputStream(OutputStream&& other) noexcept = default;
  OutputStream& operator=(OutputStream&& other) = delete;
  // Cancels the request if it has not ended. Does not wait.
  ~OutputStream();

  // Waits for the next chunk of any choice. nullopt once every choice has had its last one.
  std::optional<OutputChunk> Next();
  // Waits for all that is left. Returns one entry per choice, in order, with its chunks merged; an
  // error is in its choice's entry.
  std::vector<OutputChunk> Collect();
  // Waits until Next need not wait, but at most this long; returns whether it need not. A program
  // that also watches something else, such as a flag set by a signal handler, calls it in a loop.
  bool WaitFor(double seconds);
  // Ends the request early. Each choice still has a last chunk.
  void Cancel();

 private:
  friend class Engine;
  struct Queue;
  OutputStream(Engine& engine, int32_t num_choices);

  Engine* engine_;
  std::shared_ptr<Queue> queue_;  // null after a move; the engine thread appends to it
  RequestId id_ = 0;
  int32_t num_choices_;
  int32_t open_;  // choices whose last chunk has not been taken
};

}  // namespace tokamak
