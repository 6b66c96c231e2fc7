#include "ops/cpu/amx/bf16_linear.h"
#include "ops/cpu/amx/linear.h"
#include "ops/cpu/kernels/int8_quantize.h"

namespace tokamak::cpu {

const Int8Kernels* AmxInt8Kernels() {
  static constexpr Int8Kernels kKernels = {
      .tokens_at_once = 16, .linear = AmxLinear::Run, .quantize = Int8Quantize<Avx512Vnni>::Run};
  return &kKernels;
}

const Bf16Kernels* AmxBf16Kernels() {
  static constexpr Bf16Kernels kKernels = MakeAmxBf16Kernels<Tiles>();
  return &kKernels;
}

}  // namespace tokamak::cpu
