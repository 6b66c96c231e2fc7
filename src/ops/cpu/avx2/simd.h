// AVX2 with FMA and F16C: 8 lanes. Only one file includes it; internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its kernels.cc alone

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  // 16 registers: 12 sums, the rest for weights and scalars.
  static constexpr int kMaxRows = 6;
  static constexpr int kMaxAccumulators = 12;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F Broadcast(float v) { return _mm256_set1_ps(v); }
  static float First(F v) { return _mm256_cvtss_f32(v); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  // Returns b if either is NaN.
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }

  // Folds halves until one lane is left: lane i + lane i + 4, then i + 2, then i + 1.
  static float SumLanes(F v) {
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static float MaxLanes(F v) {
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  static I LoadInt(const void* p) { return _mm256_loadu_si256(static_cast<const I*>(p)); }
  static I LoadUint16(const void* p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static I LoadInt8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static I LoadUint8(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static I And(I a, int b) { return _mm256_and_si256(a, _mm256_set1_epi32(b)); }
  static I Or(I a, I b) { return _mm256_or_si256(a, b); }
  static I AddInt(I a, int b) { return _mm256_add_epi32(a, _mm256_set1_epi32(b)); }
  static I SubInt(I a, I b) { return _mm256_sub_epi32(a, b); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm256_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm256_srli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRightSigned(I a) {
    return _mm256_srai_epi32(a, kBits);
  }
  static I ShiftLeftBy(I a, int bits) { return _mm256_sll_epi32(a, _mm_cvtsi32_si128(bits)); }
  static I ShiftRightBy(I a, int bits) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
  static F ToFloat(I a) { return _mm256_cvtepi32_ps(a); }
  static F AsFloat(I a) { return _mm256_castsi256_ps(a); }
  static I Round(F a) { return _mm256_cvtps_epi32(a); }
  // 2^n for n in [-126, 127].
  static F PowerOfTwo(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }

  // table[low four bits of each lane].
  static F Lookup(I code, const float* table) {
    const F low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), code);
    const F high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), code);
    return _mm256_blendv_ps(low, high, AsFloat(_mm256_slli_epi32(code, 28)));
  }
  // The low four bits plus kOffset, as f32.
  template <int kOffset>
  static F Nibble(I code) {
    const I masked = And(code, 0x0f);
    return ToFloat(kOffset == 0 ? masked : AddInt(masked, kOffset));
  }

  static F LoadHalf(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F BroadcastHalf(const std::byte* p) {
    int16_t half;
    __builtin_memcpy(&half, p, sizeof(half));
    return _mm256_cvtph_ps(_mm_set1_epi16(half));
  }
  static F LoadBFloat16(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(LoadUint16(p), 16));
  }
  // A code read as a half has its value times 2^-8. NaN needs all bits of its exponent set.
  static F LoadE4m3(const std::byte* p) {
    const __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i halves = _mm_and_si128(_mm_slli_epi16(codes, 7), _mm_set1_epi16(-0x4001));
    const __m128i nan = _mm_set1_epi16(0x7f);
    const __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(codes, nan), nan);
    return Mul(_mm256_cvtph_ps(_mm_or_si128(halves, is_nan)), Broadcast(256));
  }
  static void StoreHalf(std::byte* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Rounds to nearest, ties to even. NaN keeps its top bits and becomes quiet.
  static void StoreBFloat16(std::byte* p, F v) {
    const I bits = _mm256_castps_si256(v);
    const I top = _mm256_srli_epi32(bits, 16);
    const I rounded = _mm256_srli_epi32(_mm256_add_epi32(AddInt(bits, 0x7fff), And(top, 1)), 16);
    const I quiet = Or(top, _mm256_set1_epi32(0x40));
    const I is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const I words = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const I packed = _mm256_packus_epi32(words, words);  // each half twice
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
  }
};

}  // namespace
}  // namespace tokamak::cpu
