#include "ops/cpu/amx/bf16_linear.h"
#include "ops/cpu/amx/int8_linear.h"

namespace tokamak::cpu {

const Int8Kernels* AmxInt8Kernels() {
  static constexpr Int8Kernels kKernels = MakeAmxInt8Kernels<Tiles>();
  return &kKernels;
}

const Bf16Kernels* AmxBf16Kernels() {
  static constexpr Bf16Kernels kKernels = MakeAmxBf16Kernels<Tiles>();
  return &kKernels;
}

}  // namespace tokamak::cpu
