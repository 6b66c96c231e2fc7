// Bits of a mask of tokens (engine/token_constraint.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "step/step_input.h"

namespace tokamak {

inline void AllowToken(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << id % 32;
}
inline void ForbidToken(std::span<uint32_t> mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << id % 32);
}

}  // namespace tokamak
