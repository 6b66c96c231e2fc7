// Memory for weights. A step reads all of them, one after the other: small ones share huge pages,
// so that reading is not held up at the end of each 4 KiB.
#pragma once

#include <cstddef>

#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// Owner: the thread of the backend.
class WeightMemory {
 public:
  // Uninitialized, aligned for any tensor; kResourceExhausted with the size when there is none.
  Result<Buffer> Allocate(size_t bytes);

 private:
  Buffer slab_;
  size_t used_ = 0;  // of the slab
};

}  // namespace tokamak::cpu
