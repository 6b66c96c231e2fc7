// Memory for weights. Small ones share huge pages, so that a step, which reads all weights in
// order, does not stall at the end of each 4 KiB.
#pragma once

#include <cstddef>

#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// Owner: the thread of the backend.
class WeightMemory {
 public:
  // Returns uninitialized memory, aligned for any tensor, or kResourceExhausted with the size.
  Result<Buffer> Allocate(size_t bytes);

 private:
  Buffer slab_;
  size_t used_ = 0;  // of the slab
};

}  // namespace tokamak::cpu
