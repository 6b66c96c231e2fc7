// BlockPool: reference counts of the blocks of one tier.
#pragma once

#include <cstdint>
#include <vector>

#include "step/cache_spec.h"
#include "step/step_input.h"

namespace tokamak {

// Blocks are numbered from 0; one without references is free. Owned by BlockManager, on the engine
// thread.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t size() const { return static_cast<int32_t>(references_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t references(BlockId block) const { return references_[block]; }

  // Returns a block with one reference, or kNoBlock if none is free.
  BlockId Allocate();
  void Ref(BlockId block);
  // Drops a reference and returns how many are left; at 0 the block is free.
  int32_t Unref(BlockId block);
  // Frees all blocks, referenced or not.
  void Reset();

 private:
  std::vector<int32_t> references_;
  std::vector<BlockId> free_;
};

}  // namespace tokamak
