// What an ISA with dot products of bf16 supplies: Linear on activations in bf16, for weights that
// are BF16 themselves.
//
// The recipe of an output is that of the ISA's instruction, the same for every number of rows. Both
// start from zero, round each multiply-add to f32 once (to nearest), and take denormal numbers for
// zero; then + bias.
//
//   AVX512-BF16: for each pair of elements k, k + 1 in ascending k,
//     sum = fma(w[k + 1], x[k + 1], sum); sum = fma(w[k], x[k], sum)
//   AMX-BF16: for each 32 elements in ascending k, two chains of fma from zero over ascending k,
//     one of the even elements and one of the odd ones; sum = sum + (even + odd)
//
// A row's end is filled up with zeros on both sides.
#pragma once

#include "ops/cpu/kernels.h"

namespace tokamak::cpu {

// Panels that one work item multiplies at most.
inline constexpr int kMaxBf16Panels = 8;

struct Bf16Kernels {
  // Tokens that one pass over the weights takes: multiples of it make good work items.
  int tokens_at_once;
  void (*linear)(const LinearTask& task);
};

// One per ISA folder; null where this build has no such ISA.
const Bf16Kernels* Avx512Bf16Kernels();
const Bf16Kernels* AmxBf16Kernels();

}  // namespace tokamak::cpu
