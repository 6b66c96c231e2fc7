// BlockPool: which blocks of one tier are free, and how many owners each of the others has.
#pragma once

#include <cstdint>
#include <vector>

#include "step/cache_spec.h"
#include "step/step_input.h"

namespace tokamak {

// Counts references to equal blocks, numbered from 0. Owned by the engine thread through
// BlockManager. A block with no references is free; it never knows who its owners are.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t size() const { return static_cast<int32_t>(references_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t references(BlockId block) const { return references_[block]; }

  // A block with one reference, or kNoBlock when none is free.
  BlockId Allocate();
  void Ref(BlockId block);
  // Drops a reference and returns how many are left; the block is free at none.
  int32_t Unref(BlockId block);
  // Frees all blocks, whoever owns them.
  void Reset();

 private:
  std::vector<int32_t> references_;
  std::vector<BlockId> free_;
};

}  // namespace tokamak
