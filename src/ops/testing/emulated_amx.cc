#include "ops/testing/emulated_amx.h"

#include "ops/cpu/amx/bf16_linear.h"
#include "ops/cpu/amx/int8_linear.h"
#include "ops/testing/emulated_tiles.h"

namespace tokamak::cpu {

const Int8Kernels* EmulatedAmxInt8Kernels() {
  static constexpr Int8Kernels kKernels = MakeAmxInt8Kernels<EmulatedTiles>();
  return &kKernels;
}

const Bf16Kernels* EmulatedAmxBf16Kernels() {
  static constexpr Bf16Kernels kKernels = MakeAmxBf16Kernels<EmulatedTiles>();
  return &kKernels;
}

}  // namespace tokamak::cpu
