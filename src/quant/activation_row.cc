#include "quant/activation_row.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace tokamak {
namespace {

// Writes codes[32] and their two sums; returns the scale.
float QuantizeBlock(const float* x, int8_t* codes, int16_t sums[2]) {
  float highest = 0;
  bool finite = true;
  for (int i = 0; i < kActivationBlock; ++i) {
    highest = std::fmax(highest, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  sums[0] = sums[1] = 0;
  const bool nothing = !finite || highest < kSmallestActivation;
  const float inverse = nothing ? 0 : 127.0f / highest;
  for (int i = 0; i < kActivationBlock; ++i) {
    codes[i] = nothing ? int8_t{0} : static_cast<int8_t>(std::nearbyintf(x[i] * inverse));
    sums[i / 16] = static_cast<int16_t>(sums[i / 16] + codes[i]);
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return nothing ? 0 : highest / 127.0f;
}

}  // namespace

void QuantizeActivations(const float* x, int64_t n, void* row) {
  auto* const bytes = static_cast<std::byte*>(row);
  for (int64_t block = 0; block < n / kActivationBlock; ++block) {
    int8_t codes[kActivationBlock];
    int16_t sums[2];
    const float scale = QuantizeBlock(x + block * kActivationBlock, codes, sums);
    std::memcpy(bytes + block * kActivationBlock, codes, sizeof(codes));
    std::memcpy(bytes + ActivationScales(n) + block * 4, &scale, 4);
    std::memcpy(bytes + ActivationLowSums(n) + block * 2, &sums[0], 2);
    std::memcpy(bytes + ActivationHighSums(n) + block * 2, &sums[1], 2);
  }
}

void DequantizeActivations(const void* row, int64_t n, float* x) {
  const auto* const bytes = static_cast<const std::byte*>(row);
  for (int64_t i = 0; i < n; ++i) {
    float scale;
    std::memcpy(&scale, bytes + ActivationScales(n) + i / kActivationBlock * 4, 4);
    x[i] = scale * static_cast<float>(static_cast<int8_t>(bytes[i]));
  }
}

}  // namespace tokamak
