// The sums that cpu/bf16_kernels.h defines for one output, in scalar code. w, x: [cols] values that
// bf16 can hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tokamak {

inline float Avx512Bf16Sum(const float* w, const float* x, int64_t cols) {
  float sum = 0;
  for (int64_t k = 0; k < cols; k += 2) {
    if (k + 1 < cols) sum = std::fma(w[k + 1], x[k + 1], sum);
    sum = std::fma(w[k], x[k], sum);
  }
  return sum;
}

inline float AmxBf16Sum(const float* w, const float* x, int64_t cols) {
  float sum = 0;
  for (int64_t begin = 0; begin < cols; begin += 32) {
    float parts[2] = {};
    for (int64_t k = begin; k < std::min(cols, begin + 32); ++k) {
      parts[k % 2] = std::fma(w[k], x[k], parts[k % 2]);
    }
    sum += parts[0] + parts[1];
  }
  return sum;
}

}  // namespace tokamak
