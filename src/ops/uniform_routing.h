// Random scores of experts for RouterConfig::Score::kUniform, the same on every backend.
#pragma once

#include <cstdint>

#include "base/gumbel.h"

namespace tokamak {

// Uniform in [0, 1), and independent for distinct arguments. The key is a router's output, given
// as the bits of a float that is a number: so equal rows choose equal experts, and others
// independent ones.
constexpr double UniformScore(int expert, uint32_t logit_bits) {
  return 0x1p-32 * Philox4x32({static_cast<uint32_t>(expert), logit_bits, 0, 0}, {0, 0})[0];
}

}  // namespace tokamak
