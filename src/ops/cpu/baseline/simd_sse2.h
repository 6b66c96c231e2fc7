// SSE2, which every x86-64 CPU has: 4 lanes, no FMA. Only one file includes it; internal linkage.
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

#include "quant/half.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its kernels.cc alone

struct Baseline {
  using F = __m128;
  using I = __m128i;
  static constexpr int kLanes = 4;
  // 16 registers: 12 sums, the rest for weights and scalars.
  static constexpr int kMaxRows = 3;
  static constexpr int kMaxAccumulators = 12;

  static F Zero() { return _mm_setzero_ps(); }
  static F Load(const float* p) { return _mm_loadu_ps(p); }
  static void Store(float* p, F v) { _mm_storeu_ps(p, v); }
  static F Broadcast(float v) { return _mm_set1_ps(v); }
  static float First(F v) { return _mm_cvtss_f32(v); }
  static F Add(F a, F b) { return _mm_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm_div_ps(a, b); }
  // Rounds twice, unlike the other ISAs.
  static F Fma(F a, F b, F c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  static F Negate(F a) { return _mm_xor_ps(a, _mm_set1_ps(-0.0f)); }
  // Returns b if either is NaN.
  static F Max(F a, F b) { return _mm_max_ps(a, b); }
  static F Min(F a, F b) { return _mm_min_ps(a, b); }

  // Folds halves until one lane is left: lane i + lane i + 2, then i + 1.
  static float SumLanes(F v) {
    const F c = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
  }
  static float MaxLanes(F v) {
    const F c = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
  }

  static I LoadInt(const void* p) { return _mm_loadu_si128(static_cast<const I*>(p)); }
  static I LoadUint16(const void* p) {
    return _mm_unpacklo_epi16(_mm_loadl_epi64(static_cast<const I*>(p)), _mm_setzero_si128());
  }
  static I LoadInt8(const void* p) {
    int32_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const I v = _mm_cvtsi32_si128(bytes);
    const I pairs = _mm_unpacklo_epi8(v, v);
    return _mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24);
  }
  static I LoadUint8(const std::byte* p) {
    int bytes;
    __builtin_memcpy(&bytes, p, 4);
    const I halves = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), _mm_setzero_si128());
    return _mm_unpacklo_epi16(halves, _mm_setzero_si128());
  }
  static I And(I a, int b) { return _mm_and_si128(a, _mm_set1_epi32(b)); }
  static I Or(I a, I b) { return _mm_or_si128(a, b); }
  static I AddInt(I a, int b) { return _mm_add_epi32(a, _mm_set1_epi32(b)); }
  static I SubInt(I a, I b) { return _mm_sub_epi32(a, b); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm_srli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRightSigned(I a) {
    return _mm_srai_epi32(a, kBits);
  }
  static I ShiftLeftBy(I a, int bits) { return _mm_sll_epi32(a, _mm_cvtsi32_si128(bits)); }
  static I ShiftRightBy(I a, int bits) { return _mm_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
  static F ToFloat(I a) { return _mm_cvtepi32_ps(a); }
  static F AsFloat(I a) { return _mm_castsi128_ps(a); }
  static I Round(F a) { return _mm_cvtps_epi32(a); }
  // 2^n for n in [-126, 127].
  static F PowerOfTwo(I n) {
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23));
  }

  // table[low four bits of each lane].
  static F Lookup(I code, const float* table) {
    alignas(16) uint32_t index[4];
    _mm_store_si128(reinterpret_cast<I*>(index), And(code, 0x0f));
    return _mm_setr_ps(table[index[0]], table[index[1]], table[index[2]], table[index[3]]);
  }
  // The low four bits plus kOffset, as f32.
  template <int kOffset>
  static F Nibble(I code) {
    const I masked = And(code, 0x0f);
    return ToFloat(kOffset == 0 ? masked : AddInt(masked, kOffset));
  }

  // Exact: moving a half's exponent and mantissa into place gives its value times 2^-112.
  static F LoadHalf(const std::byte* p) {
    const I half = LoadUint16(p);
    const I magnitude = And(half, 0x7fff);
    const F scaled = _mm_mul_ps(AsFloat(_mm_slli_epi32(magnitude, 13)), _mm_set1_ps(0x1p112f));
    const I not_finite = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7bff));
    const I nan = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32(0x7c00));
    const I sign = _mm_slli_epi32(And(half, 0x8000), 16);
    const I bits = Or(Or(_mm_castps_si128(scaled), sign),
                      Or(And(not_finite, 0x7f800000), And(nan, 0x00400000)));
    return AsFloat(bits);
  }
  static F BroadcastHalf(const std::byte* p) {
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof(half));
    return Broadcast(HalfToFloat(half));
  }
  static F LoadBFloat16(const std::byte* p) {
    return _mm_castsi128_ps(_mm_slli_epi32(LoadUint16(p), 16));
  }
  // Like LoadHalf: a code's exponent and mantissa in place are its value times 2^-120.
  static F LoadE4m3(const std::byte* p) {
    const I code = LoadInt8(p);
    const I magnitude = And(code, 0x7f);
    const F scaled = _mm_mul_ps(AsFloat(_mm_slli_epi32(magnitude, 20)), _mm_set1_ps(0x1p120f));
    const I sign = And(code, INT32_MIN);
    const I is_nan = _mm_cmpeq_epi32(magnitude, _mm_set1_epi32(0x7f));
    return AsFloat(Or(Or(_mm_castps_si128(scaled), sign), is_nan));
  }
  static void StoreHalf(std::byte* p, F v) { Store16(p, v, FloatToHalf); }
  static void StoreBFloat16(std::byte* p, F v) { Store16(p, v, FloatToBFloat16); }

 private:
  static void Store16(std::byte* p, F v, uint16_t (*convert)(float)) {
    float values[4];
    uint16_t words[4];
    Store(values, v);
    for (int i = 0; i < 4; ++i) words[i] = convert(values[i]);
    __builtin_memcpy(p, words, sizeof(words));
  }
};

}  // namespace
}  // namespace tokamak::cpu
