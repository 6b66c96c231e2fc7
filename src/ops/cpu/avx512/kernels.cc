#include "ops/cpu/avx512/simd.h"
#include "ops/cpu/kernels/table.h"

namespace tokamak::cpu {

const Kernels* Avx512Kernels() {
  static constexpr Kernels kKernels = MakeKernels<Avx512>();
  return &kKernels;
}

}  // namespace tokamak::cpu
