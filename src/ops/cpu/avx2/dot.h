// AVX2's integer dot products: pairs of products in 16 bits, which saturate, then sums of pairs.
#pragma once

#include "ops/cpu/avx2/simd.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

// Shared by AVX2 and AVX-VNNI.
struct Avx2Bytes : Avx2 {
  // 16 registers: 4 integer sums, 4 floating-point sums, the rest for a word and its scales.
  static constexpr int kMaxTokens = 4;

  static I ZeroInt() { return _mm256_setzero_si256(); }
  static I BroadcastInt(const void* p) {
    int word;
    __builtin_memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
  }
  static I Xor(I a, int b) { return _mm256_xor_si256(a, _mm256_set1_epi32(b)); }
  // table[byte] for bytes below 16.
  static I LookupBytes(I bytes, const void* table) {
    const __m128i entries = _mm_load_si128(static_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), bytes);
  }

  // Stores the low byte of each lane. Lanes are in [-128, 127].
  static void StoreBytes(std::byte* p, I v) {
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  // Σ of 16 signed bytes.
  static int16_t SumOfBytes(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
    const __m128i quarters = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
    const __m128i halves = _mm_add_epi32(quarters, _mm_srli_si128(quarters, 8));
    return static_cast<int16_t>(
        _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_srli_si128(halves, 4))));
  }
};

struct Avx2Dot : Avx2Bytes {
  static constexpr bool kSigned = true;
  struct Sum {
    I wide;    // i32
    I narrow;  // i16, of the words since the last flush
  };

  static Sum Start(I value) { return {value, ZeroInt()}; }
  // Adds Σ w[b] · x[b] over the four bytes b of each lane. w is unsigned and at most kTop, or
  // signed. Called for words kJ = 0 .. kWords - 1 between Start and Total.
  template <int kTop, bool kIsSigned, int kJ, int kWords>
  static void AddDot(Sum& sum, I w, const std::byte* x) {
    // Number of words whose sums of products fit into 16 bits together.
    constexpr int kFused = 32767 / (2 * 127 * kTop);
    static_assert(kFused >= 1);
    I factor = BroadcastInt(x);
    if constexpr (kIsSigned) {
      factor = _mm256_sign_epi8(factor, w);
      w = _mm256_abs_epi8(w);
    }
    const I pairs = _mm256_maddubs_epi16(w, factor);
    sum.narrow = kJ % kFused == 0 ? pairs : _mm256_add_epi16(sum.narrow, pairs);
    if constexpr (kJ % kFused == kFused - 1 || kJ == kWords - 1) {
      sum.wide = _mm256_add_epi32(sum.wide, _mm256_madd_epi16(sum.narrow, _mm256_set1_epi16(1)));
    }
  }
  static I Total(const Sum& sum) { return sum.wide; }
};

}  // namespace
}  // namespace tokamak::cpu
