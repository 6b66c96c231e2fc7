// XTC's two decisions. constexpr, for device code.
#pragma once

#include "base/gumbel.h"
#include "ops/sampling/mass.h"

namespace tokamak::sampling {

// Returns whether the draw drops its most likely tokens.
constexpr bool DecidesXtc(const DrawKey& key, float probability) {
  return static_cast<double>(DecisionWord(key)) < static_cast<double>(probability) * 0x1p32;
}

// Returns whether a token is one of the most likely ones.
constexpr bool ReachesXtc(Mass mass, Mass total, float threshold) {
  return static_cast<double>(mass) >= static_cast<double>(threshold) * static_cast<double>(total);
}

}  // namespace tokamak::sampling
