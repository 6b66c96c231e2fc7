#include "tokenizer/bpe_merges.h"

#include <bit>

namespace tokamak {
namespace {

uint64_t Pair(BpeSymbol left, BpeSymbol right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeMerges::BpeMerges(size_t count) : slots_(std::bit_ceil(2 * count + 2)) {}

// The slot of the pair, or the one where it belongs.
size_t BpeMerges::FindSlot(uint64_t pair) const {
  uint64_t hash = pair * 0x9E3779B97F4A7C15u;  // Fibonacci hashing
  hash ^= hash >> 32;
  for (size_t i = hash;; ++i) {
    const size_t slot = i & (slots_.size() - 1);
    if (slots_[slot].pair == pair || slots_[slot].pair == Slot::kEmpty) return slot;
  }
}

void BpeMerges::Insert(BpeSymbol left, BpeSymbol right, uint32_t rank, BpeSymbol result) {
  const uint64_t pair = Pair(left, right);
  Slot& slot = slots_[FindSlot(pair)];
  if (slot.pair == Slot::kEmpty) slot = {pair, {rank, result}};
}

BpeMerge BpeMerges::Find(BpeSymbol left, BpeSymbol right) const {
  if (left < 0 || right < 0) return {};
  return slots_[FindSlot(Pair(left, right))].merge;  // an empty slot holds no merge
}

}  // namespace tokamak
