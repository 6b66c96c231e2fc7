// AVX512-BF16: one instruction adds two bf16 products to each lane.
#pragma once

#include "ops/cpu/avx512/simd.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

struct Avx512Bf16 : Avx512 {
  // Broadcasts two elements to all lanes.
  static I BroadcastPair(const std::byte* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return _mm512_set1_epi32(pair);
  }
  // fma(a[0], b[0], fma(a[1], b[1], sum)) for the pairs a, b of each lane.
  static F AddDot(F sum, I a, I b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace
}  // namespace tokamak::cpu
