// Memory for weights. Small ones share huge pages, so that a step, which reads all weights in
// order, does not stall at the end of each 4 KiB.
#pragma once

#include <cstddef>
#include <vector>

#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// Owner: the thread of the backend.
class WeightMemory {
 public:
  // Returns uninitialized memory, aligned for any tensor, or kResourceExhausted with the size.
  Result<Buffer> Allocate(size_t bytes);
  // Working memory of each worker for the rows that it packs. Kept from weight to weight, because a
  // model of many experts has thousands of small ones; a few hundred KB per worker.
  std::vector<std::vector<std::byte>>& Rows(int num_workers) {
    if (rows_.size() < static_cast<size_t>(num_workers)) {
      rows_.resize(static_cast<size_t>(num_workers));
    }
    return rows_;
  }

 private:
  std::vector<std::vector<std::byte>> rows_;
  Buffer slab_;
  size_t used_ = 0;  // of the slab
};

}  // namespace tokamak::cpu
