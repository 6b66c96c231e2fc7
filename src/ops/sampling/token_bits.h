// Sets of tokens as bits: token id is bit id % 32 of word id / 32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "step/step_input.h"

namespace tokamak::sampling {

// `bits` must have room for the largest id.
inline void SetTokenBits(std::span<const TokenId> ids, uint32_t* bits) {
  for (const TokenId id : ids) bits[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

// Returns as many words as the largest id needs.
inline std::vector<uint32_t> TokenBits(std::span<const TokenId> ids) {
  if (ids.empty()) return {};
  std::vector<uint32_t> bits(static_cast<size_t>(*std::max_element(ids.begin(), ids.end())) / 32 +
                             1);
  SetTokenBits(ids, bits.data());
  return bits;
}

}  // namespace tokamak::sampling
