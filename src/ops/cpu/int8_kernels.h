// What an ISA with integer dot products supplies: Linear on activations in int8
// (quant/activation_row.h), and the making of them.
//
// The recipe of an output, the same for every number of rows and on every ISA: for each group of 32
// elements in ascending k, and in formats whose scales cover 16 for both halves of it,
//
//   sum = fma(float(Σ code · q) · scale, d, sum), then, in formats with a minimum,
//   sum = fma(min, d · float(Σ q), sum)
//
// from zero, the Σ exact in integers; then + bias.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"

namespace tokamak::cpu {

// Panels that one work item multiplies at most.
inline constexpr int kMaxInt8Panels = 8;

struct Int8Kernels {
  // Tokens that one pass over the weights takes: multiples of it make good work items.
  int tokens_at_once;
  void (*linear)(const LinearTask& task);  // of block types
  // n elements (whole blocks) from element `first` on of a row of `cols` in all.
  void (*quantize)(const float* x, int64_t first, int64_t n, int64_t cols, std::byte* row);
};

// One per ISA folder; null where this build has no such ISA.
const Int8Kernels* Avx2Int8Kernels();
const Int8Kernels* AvxVnniInt8Kernels();
const Int8Kernels* Avx512VnniInt8Kernels();
const Int8Kernels* AmxInt8Kernels();
const Int8Kernels* NeonDotInt8Kernels();
const Int8Kernels* NeonI8mmInt8Kernels();

}  // namespace tokamak::cpu
