#include "ops/cpu/avx2/dot.h"
#include "ops/cpu/kernels/int8_quantize.h"

namespace tokamak::cpu {

const Int8Kernels* Avx2Int8Kernels() {
  static constexpr Int8Kernels kKernels = MakeInt8Kernels<Avx2Dot>();
  return &kKernels;
}

}  // namespace tokamak::cpu
