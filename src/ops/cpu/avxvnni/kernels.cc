// AVX-VNNI: AVX2 with one instruction that adds four products of bytes to each lane.
#include "ops/cpu/avx2/dot.h"
#include "ops/cpu/kernels/int8_quantize.h"

namespace tokamak::cpu {
namespace {

struct AvxVnni : Avx2Bytes {
  using Sum = I;
  static constexpr bool kSigned = false;

  static Sum Start(I value) { return value; }
  template <int kTop, bool kIsSigned, int kJ, int kWords>
  static void AddDot(Sum& sum, I w, const std::byte* x) {
    static_assert(!kIsSigned);
    sum = _mm256_dpbusd_avx_epi32(sum, w, BroadcastInt(x));
  }
  static I Total(Sum sum) { return sum; }
};

}  // namespace

const Int8Kernels* AvxVnniInt8Kernels() {
  static constexpr Int8Kernels kKernels = MakeInt8Kernels<AvxVnni>();
  return &kKernels;
}

}  // namespace tokamak::cpu
