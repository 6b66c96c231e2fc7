// A backend that delays all work: tasks wait in their stream's queue, as on a GPU. Streams advance
// when the host waits and at random other times, in any order that their events allow. Code that
// relies on finished work, or on the order of two streams, fails on it, also with graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "ops/ops.h"

namespace tokamak::testing {

// The device that the backend simulates.
struct QueuedDevice {
  Capabilities capabilities = Capabilities::All();
  std::optional<int64_t> free_bytes = std::nullopt;  // free bytes of its own memory
  // Called when rows have been drawn.
  std::function<void(std::span<const SampleRow>)> on_draw = {};
  std::function<void()> on_launch = {};  // called when a graph is launched
};

// `inner`, a backend in main memory, does the actual work.
std::unique_ptr<Ops> MakeQueuedOps(std::unique_ptr<Ops> inner, uint64_t seed,
                                   const QueuedDevice& device = {});

// Runs all work that such a backend has been given and that waits for nothing more.
void FinishQueuedWork(Ops& queued);

}  // namespace tokamak::testing
