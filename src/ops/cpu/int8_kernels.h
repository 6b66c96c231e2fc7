// Supplied by an ISA with integer dot products: quantization to int8 activations
// (quant/activation_row.h), and Linear on them.
//
// An output's arithmetic is the same for any number of rows and on every ISA. For each group of 32
// elements in ascending k (each half of it, in formats whose scales cover 16 elements):
//
//   sum = fma(float(Σ code · q) · scale, d, sum), then, in formats with a minimum,
//   sum = fma(min, d · float(Σ q), sum)
//
// Sums start from zero, the Σ are exact integers, and the bias is added last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"

namespace tokamak::cpu {

// Maximum panels per work item.
inline constexpr int kMaxInt8Panels = 8;

struct Int8Kernels {
  // Tokens per pass over the weights: work items should be multiples of it.
  int tokens_at_once;
  void (*linear)(const LinearTask& task);  // for block types
  // Quantizes n elements (whole blocks) from `first` on of a row of `cols`.
  void (*quantize)(const float* x, int64_t first, int64_t n, int64_t cols, std::byte* row);
};

// One per ISA folder. Null if this build lacks the ISA.
const Int8Kernels* Avx2Int8Kernels();
const Int8Kernels* AvxVnniInt8Kernels();
const Int8Kernels* Avx512VnniInt8Kernels();
const Int8Kernels* AmxInt8Kernels();
const Int8Kernels* NeonDotInt8Kernels();
const Int8Kernels* NeonI8mmInt8Kernels();

}  // namespace tokamak::cpu
