// Supplied by an ISA with bf16 dot products: Linear for BF16 weights and bf16 activations.
//
// An output's arithmetic is that of the ISA's instruction, the same for any number of rows. Sums
// start from zero, each multiply-add is rounded once to f32 (to nearest), denormals count as zero,
// and the bias is added last.
//
//   AVX512-BF16: for each pair of elements k, k + 1 in ascending k,
//     sum = fma(w[k + 1], x[k + 1], sum); sum = fma(w[k], x[k], sum)
//   AMX-BF16: for each 32 elements in ascending k, two chains of fma from zero over ascending k,
//     one of the even elements and one of the odd ones; sum = sum + (even + odd)
//
// Rows are padded with zeros.
#pragma once

#include "ops/cpu/kernels.h"

namespace tokamak::cpu {

// Maximum panels per work item.
inline constexpr int kMaxBf16Panels = 8;

struct Bf16Kernels {
  // Tokens per pass over the weights: work items should be multiples of it.
  int tokens_at_once;
  void (*linear)(const LinearTask& task);
};

// One per ISA folder. Null if this build lacks the ISA.
const Bf16Kernels* Avx512Bf16Kernels();
const Bf16Kernels* AmxBf16Kernels();

}  // namespace tokamak::cpu
