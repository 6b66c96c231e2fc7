// Integer dot products of Armv8.2 (FEAT_DotProd): one NEON instruction adds four products of bytes
// to each lane; its second factor can be any lane of a register.
#pragma once

#include "ops/cpu/baseline/simd_neon.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

struct NeonDot : Baseline {
  using Sum = I;
  // 32 registers: 8 integer sums, 8 floating-point sums, 8 for the tokens' codes, the rest for a
  // word and its scales.
  static constexpr int kMaxTokens = 8;
  // sdot takes signed bytes. Unsigned codes, which have fewer than eight bits, are signed bytes
  // too.
  static constexpr bool kSigned = true;

  static I ZeroInt() { return vdupq_n_s32(0); }
  static I BroadcastInt(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return vdupq_n_s32(word);
  }
  static I Xor(I a, int b) { return veorq_s32(a, vdupq_n_s32(b)); }
  // table[byte] for bytes below 16.
  static I LookupBytes(I bytes, const void* table) {
    const uint8x16_t entries = vld1q_u8(static_cast<const uint8_t*>(table));
    return vreinterpretq_s32_u8(vqtbl1q_u8(entries, vreinterpretq_u8_s32(bytes)));
  }

  static Sum Start(I value) { return value; }
  // Adds Σ w[b] · x[b] over the four bytes b of each lane. Called for words kJ = 0 .. kWords - 1
  // between Start and Total. Words 4i .. 4i + 3 of x are adjacent; the compiler loads them once.
  template <int kTop, bool kIsSigned, int kJ, int kWords>
  static void AddDot(Sum& sum, I w, const std::byte* x) {
    static_assert(kTop <= (kIsSigned ? 128 : 127) && kWords % 4 == 0);
    constexpr int kLane = kJ % 4;
    const int8x16_t words = vld1q_s8(reinterpret_cast<const int8_t*>(x - 4 * kLane));
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(w), words, kLane);
  }
  static I Total(Sum sum) { return sum; }

  // Stores the low byte of each lane, by memcpy as in Store.
  static void StoreBytes(std::byte* p, I v) {
    const int16x4_t halves = vmovn_s32(v);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(halves, halves));
    const int32_t word = vget_lane_s32(vreinterpret_s32_s8(bytes), 0);
    __builtin_memcpy(p, &word, sizeof(word));
  }
  // Σ of 16 signed bytes.
  static int16_t SumOfBytes(const std::byte* p) {
    return vaddlvq_s8(vld1q_s8(reinterpret_cast<const int8_t*>(p)));
  }
};

}  // namespace
}  // namespace tokamak::cpu
