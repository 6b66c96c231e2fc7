// Checks before loading whether weights fit in memory.
#pragma once

#include <cstdint>
#include <string>

#include "tokamak/status.h"

namespace tokamak {

struct MemoryBudget {
  uint64_t available_bytes = 0;
  std::string limited_by;  // for messages: "the machine" or "the memory limit of cgroup /x"
};

// Memory that this process may still allocate: the smaller of the kernel's estimate (MemAvailable)
// and what its cgroups (v1 or v2) leave. A cgroup's inactive file cache counts as available.
// kUnavailable if /proc does not say. `root` replaces / in tests.
Result<MemoryBudget> AvailableMemory(const std::string& root = "");

// kResourceExhausted, with both numbers, if `bytes` exceeds the budget. `what` starts the message:
// "model.gguf: the weights".
Status CheckFitsInMemory(const std::string& what, uint64_t bytes, const MemoryBudget& budget);
// Uses AvailableMemory(); OK if that is unknown.
Status CheckFitsInMemory(const std::string& what, uint64_t bytes);

}  // namespace tokamak
