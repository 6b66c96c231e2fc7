// A backend that delays all work: tasks wait in their stream's queue, as on a GPU. Streams advance
// when the host waits and at random other times, in any order that their events allow. Code that
// relies on finished work, or on the order of two streams, fails on it, also with graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ops/ops.h"

namespace tokamak::testing {

// The device that the backend simulates.
struct QueuedDevice {
  Capabilities capabilities = Capabilities::All();
  std::optional<int64_t> free_bytes = std::nullopt;  // free bytes of its own memory
};

// `inner`, a backend in main memory, does the actual work.
std::unique_ptr<Ops> MakeQueuedOps(std::unique_ptr<Ops> inner, uint64_t seed,
                                   const QueuedDevice& device = {});

}  // namespace tokamak::testing
