#include "engine/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace tokamak {

BlockPool::BlockPool(int32_t num_blocks) : references_(num_blocks) { Reset(); }

BlockId BlockPool::Allocate() {
  if (free_.empty()) return kNoBlock;
  const BlockId block = free_.back();
  free_.pop_back();
  references_[block] = 1;
  return block;
}

void BlockPool::Ref(BlockId block) {
  CHECK(references_[block] > 0);
  ++references_[block];
}

int32_t BlockPool::Unref(BlockId block) {
  CHECK(references_[block] > 0);
  if (--references_[block] == 0) free_.push_back(block);
  return references_[block];
}

void BlockPool::Reset() {
  std::fill(references_.begin(), references_.end(), 0);
  free_.resize(references_.size());
  for (size_t i = 0; i < free_.size(); ++i) {
    free_[i] = static_cast<BlockId>(free_.size() - 1 - i);  // hands out block 0 first
  }
}

}  // namespace tokamak
