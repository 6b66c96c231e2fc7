// AVX512-VNNI: one instruction adds four products of bytes to each lane.
#pragma once

#include "ops/cpu/avx512/simd.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

struct Avx512Vnni : Avx512 {
  using Sum = I;
  // 32 registers: 12 integer sums, 12 floating-point sums, the rest for a word and its scales.
  static constexpr int kMaxTokens = 12;
  static constexpr bool kSigned = false;

  static I ZeroInt() { return _mm512_setzero_si512(); }
  static I BroadcastInt(const void* p) {
    int word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }
  static I Xor(I a, int b) { return _mm512_xor_si512(a, _mm512_set1_epi32(b)); }
  // table[byte] for bytes below 16.
  static I LookupBytes(I bytes, const void* table) {
    const __m128i entries = _mm_load_si128(static_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), bytes);
  }

  static Sum Start(I value) { return value; }
  // Adds Σ w[b] · x[b] over the four bytes b of each lane. w is unsigned and at most kTop, or
  // signed. Called for words kJ = 0 .. kWords - 1 between Start and Total.
  template <int kTop, bool kIsSigned, int kJ, int kWords>
  static void AddDot(Sum& sum, I w, const std::byte* x) {
    static_assert(!kIsSigned);
    // GCC 12 broadcasts the four bytes with an instruction of its own.
    using Word [[gnu::may_alias]] = int;
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum)
        : "v"(w), "m"(*reinterpret_cast<const Word*>(x)));
  }
  static I Total(Sum sum) { return sum; }

  // Stores the low byte of each lane.
  static void StoreBytes(std::byte* p, I v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
  // Σ of 16 signed bytes.
  static int16_t SumOfBytes(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i quarters = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), bytes);
    const __m128i halves = _mm_add_epi32(quarters, _mm_srli_si128(quarters, 8));
    return static_cast<int16_t>(
        _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_srli_si128(halves, 4))));
  }
};

}  // namespace
}  // namespace tokamak::cpu
