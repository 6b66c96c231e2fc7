#include "ops/cpu/kernels/int8_quantize.h"
#include "ops/cpu/neondot/dot.h"

namespace tokamak::cpu {

const Int8Kernels* NeonDotInt8Kernels() {
  static constexpr Int8Kernels kKernels = MakeInt8Kernels<NeonDot>();
  return &kKernels;
}

}  // namespace tokamak::cpu
