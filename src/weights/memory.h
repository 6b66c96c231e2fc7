// Whether weights fit in the machine's memory, asked before they are read.
#pragma once

#include <cstdint>
#include <string>

#include "tokamak/status.h"

namespace tokamak {

struct MemoryBudget {
  uint64_t available_bytes = 0;
  std::string limited_by;  // for messages: "the machine" or "the memory limit of cgroup /x"
};

// What this process may still allocate: the kernel's estimate (MemAvailable) or what its control
// groups, version 1 or 2, leave, whichever is less. Files that the group has cached but does not
// use count as available. kUnavailable where /proc does not tell. `root` stands for / in tests.
Result<MemoryBudget> AvailableMemory(const std::string& root = "");

// kResourceExhausted, with both numbers, when `bytes` exceed the budget. `what` starts the message:
// "model.gguf: the weights".
Status CheckFitsInMemory(const std::string& what, uint64_t bytes, const MemoryBudget& budget);
// As above with AvailableMemory(); OK when that is not known.
Status CheckFitsInMemory(const std::string& what, uint64_t bytes);

}  // namespace tokamak
