#include "ops/cpu/avx2/simd.h"
#include "ops/cpu/kernels/table.h"

namespace tokamak::cpu {

const Kernels* Avx2Kernels() {
  static constexpr Kernels kKernels = MakeKernels<Avx2>();
  return &kKernels;
}

}  // namespace tokamak::cpu
