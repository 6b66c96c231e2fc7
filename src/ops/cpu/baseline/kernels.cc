#if defined(__aarch64__)
#include "ops/cpu/baseline/simd_neon.h"
#else
#include "ops/cpu/baseline/simd_sse2.h"
#endif
#include "ops/cpu/kernels/table.h"

namespace tokamak::cpu {

const Kernels* BaselineKernels() {
  static constexpr Kernels kKernels = MakeKernels<Baseline>();
  return &kKernels;
}

}  // namespace tokamak::cpu
