#include "ops/cpu/kernels/int8_quantize.h"
#include "ops/cpu/neoni8mm/linear.h"

namespace tokamak::cpu {

const Int8Kernels* NeonI8mmInt8Kernels() {
  static constexpr Int8Kernels kKernels = {.tokens_at_once = I8mmLinear::kMaxTokens,
                                           .linear = I8mmLinear::Run,
                                           .quantize = Int8Quantize<NeonDot>::Run};
  return &kKernels;
}

}  // namespace tokamak::cpu
