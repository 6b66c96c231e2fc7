// Rows of activations as int8, for integer dot products with quantized weights: x ≈ d · q, with one
// f32 scale d = max|x| / 127 per 32 elements and q the nearest integer (ties to even).
//
// A row of n elements (a multiple of 32) is planar, so that each part can be read as vectors:
//
//   codes      i8[n]
//   scales     f32[n / 32]
//   low sums   i16[n / 32]   Σ q over the first 16 elements of each block
//   high sums  i16[n / 32]   Σ q over the last 16
//
// The sums save kernels from adding up codes when a weight format has an offset or a minimum.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tokamak {

inline constexpr int kActivationBlock = 32;

// Byte offsets of the parts of a row of n elements.
constexpr int64_t ActivationScales(int64_t n) { return n; }
constexpr int64_t ActivationLowSums(int64_t n) { return n + n / kActivationBlock * 4; }
constexpr int64_t ActivationHighSums(int64_t n) { return n + n / kActivationBlock * 6; }

// A block whose elements are all smaller becomes zero: the inverse of its scale would overflow.
inline constexpr float kSmallestActivation = 0x1p-110f;

// Every kernel computes these same bits. A block with NaN or Inf gets the scale NaN, so whatever is
// computed from it is NaN too. `row` needs the alignment of f32.
void QuantizeActivations(const float* x, int64_t n, void* row);
void DequantizeActivations(const void* row, int64_t n, float* x);

}  // namespace tokamak
