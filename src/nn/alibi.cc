#include "nn/alibi.h"

#include <bit>
#include <cmath>

namespace tokamak::nn {

std::vector<float> AlibiSlopes(int32_t num_heads, double bias_max) {
  const auto all = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(num_heads)));
  const auto slope = [&](int32_t i) {
    return static_cast<float>(std::exp2(-bias_max * (i + 1) / all));
  };
  std::vector<float> slopes;
  if (all == num_heads) {
    for (int32_t i = 0; i < all; ++i) slopes.push_back(slope(i));
    return slopes;
  }
  for (const int32_t first : {1, 0}) {
    for (int32_t i = first; i < all; i += 2) slopes.push_back(slope(i));
  }
  slopes.resize(static_cast<size_t>(num_heads));
  return slopes;
}

}  // namespace tokamak::nn
