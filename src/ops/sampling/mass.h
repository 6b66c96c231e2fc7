// Probability masses as integers, whose sums do not depend on their order: threads, vector lanes
// and devices agree to the bit.
#pragma once

#include <cstdint>

#include "base/exact_math.h"

namespace tokamak::sampling {

// In units of 2^-40 of the most likely token's mass: 2^40 for y = 0, and 0 below y = -27.7. A
// uint64_t holds the sum of 2^24 of them.
using Mass = uint64_t;
inline constexpr float kMassOne = 0x1p40f;

// Tokens with this y or less have no mass.
inline constexpr float kMassless = -28.0f;

constexpr Mass RoundMass(float weight) {
  return static_cast<Mass>(static_cast<int64_t>(weight));  // signed: one instruction on x86-64
}

// e^y for y <= 0.
constexpr Mass MassOf(float y) { return RoundMass(ExactExp(y) * kMassOne); }

// The natural logarithm of a mass, 0 for kMassOne.
constexpr double LogOfMass(Mass mass) { return ExactLog(static_cast<double>(mass) * 0x1p-40); }

}  // namespace tokamak::sampling
