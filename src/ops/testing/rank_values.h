// The values that ranks exchange in tests of collectives.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/collectives.h"

namespace tokamak::testing {

// Values of many magnitudes, so that another order of additions gives other bits.
inline std::vector<float> ValuesOfManyMagnitudes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const auto bits = static_cast<int32_t>(random());
    value = std::ldexp(static_cast<float>(bits % 1000003), static_cast<int>(random() % 40) - 20);
  }
  return values;
}

// Columns of each rank: shares of different sizes, none at all, and one that two ranks hold.
inline std::vector<std::vector<IndexRange>> DivisionsOfColumns() {
  return {
      {{0, 6}, {6, 9}},
      {{5, 9}, {0, 5}},
      {{0, 9}, {9, 9}, {9, 9}},
      {{0, 8}, {8, 16}, {16, 24}},
      {{0, 40}, {40, 41}, {41, 60}},
      {{0, 3}, {0, 3}, {3, 6}, {3, 6}},
  };
}

}  // namespace tokamak::testing
