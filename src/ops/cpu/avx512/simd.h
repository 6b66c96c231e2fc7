// AVX-512 (F, BW, DQ, VL): 16 lanes. Only one file includes it; internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its kernels.cc alone

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  // 32 registers: 24 sums, the rest for weights and scalars.
  static constexpr int kMaxRows = 6;
  static constexpr int kMaxAccumulators = 24;

  static F Zero() { return _mm512_setzero_ps(); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F Broadcast(float v) { return _mm512_set1_ps(v); }
  static float First(F v) { return _mm512_cvtss_f32(v); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Negate(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  // Returns b if either is NaN.
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }

  // Folds halves until one lane is left: lane i + lane i + 8, then i + 4, i + 2, i + 1.
  static float SumLanes(F v) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  static float MaxLanes(F v) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  static I LoadInt(const void* p) { return _mm512_loadu_si512(p); }
  static I LoadUint16(const void* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static I LoadInt8(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static I LoadUint8(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I And(I a, int b) { return _mm512_and_si512(a, _mm512_set1_epi32(b)); }
  static I Or(I a, I b) { return _mm512_or_si512(a, b); }
  static I AddInt(I a, int b) { return _mm512_add_epi32(a, _mm512_set1_epi32(b)); }
  static I SubInt(I a, I b) { return _mm512_sub_epi32(a, b); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm512_srli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRightSigned(I a) {
    return _mm512_srai_epi32(a, kBits);
  }
  static I ShiftLeftBy(I a, int bits) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(bits)); }
  static I ShiftRightBy(I a, int bits) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
  static F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
  static F AsFloat(I a) { return _mm512_castsi512_ps(a); }
  static I Round(F a) { return _mm512_cvtps_epi32(a); }
  // 2^n for n in [-126, 127].
  static F PowerOfTwo(I n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  }

  // table[low four bits of each lane].
  static F Lookup(I code, const float* table) {
    return _mm512_permutexvar_ps(code, _mm512_loadu_ps(table));
  }
  // The low four bits plus kOffset, as f32: a look-up saves the mask and the conversion.
  template <int kOffset>
  static F Nibble(I code) {
    constexpr float o = kOffset;
    return _mm512_permutexvar_ps(
        code, _mm512_setr_ps(o, o + 1, o + 2, o + 3, o + 4, o + 5, o + 6, o + 7, o + 8, o + 9,
                             o + 10, o + 11, o + 12, o + 13, o + 14, o + 15));
  }

  static F LoadHalf(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F BroadcastHalf(const std::byte* p) {
    int16_t half;
    __builtin_memcpy(&half, p, sizeof(half));
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
  }
  static F LoadBFloat16(const std::byte* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(LoadUint16(p), 16));
  }
  // Read as a half, a code has its value times 2^-8; NaN needs all of its bits set.
  static F LoadE4m3(const std::byte* p) {
    const __m256i codes =
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i halves =
        _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(-0x4001));
    const __m256i nan = _mm256_set1_epi16(0x7f);
    const __m256i is_nan = _mm256_cmpeq_epi16(_mm256_and_si256(codes, nan), nan);
    return Mul(_mm512_cvtph_ps(_mm256_or_si256(halves, is_nan)), Broadcast(256));
  }
  static void StoreHalf(std::byte* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Rounds to nearest, ties to even. NaN keeps its top bits and becomes quiet.
  static void StoreBFloat16(std::byte* p, F v) {
    const I bits = _mm512_castps_si512(v);
    const I odd = And(_mm512_srli_epi32(bits, 16), 1);
    const I rounded = _mm512_srli_epi32(_mm512_add_epi32(AddInt(bits, 0x7fff), odd), 16);
    const I quiet = Or(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet)));
  }
};

}  // namespace
}  // namespace tokamak::cpu
