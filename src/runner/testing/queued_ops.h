// A backend that does nothing when it is told to: what is given to a stream waits in its queue, as
// on a GPU. Streams advance when the host waits, and by chance at any other time, in any order that
// their events allow. What relies on work having happened, or on two streams keeping step, fails on
// it; with graphs too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ops/ops.h"

namespace tokamak::testing {

// The device that the backend pretends to be.
struct QueuedDevice {
  bool has_all = true;                // false: it has no operations that some backends lack
  std::optional<int64_t> free_bytes;  // of a memory of its own
};

// `inner` does the work in the end: a backend in main memory.
std::unique_ptr<Ops> MakeQueuedOps(std::unique_ptr<Ops> inner, uint64_t seed,
                                   const QueuedDevice& device = {});

}  // namespace tokamak::testing
