#include "ops/cpu/avx512bf16/dot.h"
#include "ops/cpu/kernels/bf16_linear.h"

namespace tokamak::cpu {

const Bf16Kernels* Avx512Bf16Kernels() {
  using Multiply = Bf16Multiply<Avx512Bf16>;
  static constexpr Bf16Kernels kKernels = {.tokens_at_once = Multiply::kMaxTokens,
                                           .linear = Bf16Linear<Multiply>::Run};
  return &kKernels;
}

}  // namespace tokamak::cpu
