#include "ops/cpu/avx512vnni/dot.h"
#include "ops/cpu/kernels/int8_quantize.h"

namespace tokamak::cpu {

const Int8Kernels* Avx512VnniInt8Kernels() {
  static constexpr Int8Kernels kKernels = MakeInt8Kernels<Avx512Vnni>();
  return &kKernels;
}

}  // namespace tokamak::cpu
