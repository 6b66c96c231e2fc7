// NEON, which every 64-bit Arm CPU has: 4 lanes with FMA. Only one file includes it; internal
// linkage.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "quant/half.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its kernels.cc alone

struct Baseline {
  using F = float32x4_t;
  using I = int32x4_t;
  static constexpr int kLanes = 4;
  // 32 registers: 24 sums, the rest for weights and scalars.
  static constexpr int kMaxRows = 6;
  static constexpr int kMaxAccumulators = 24;

  static F Zero() { return vdupq_n_f32(0); }
  static F Load(const float* p) { return vld1q_f32(p); }
  // memcpy compiles to one store instruction. With vst1, GCC 12 takes some functions that only
  // write through it for pure and drops calls to them.
  static void Store(float* p, F v) { __builtin_memcpy(p, &v, sizeof(v)); }
  static F Broadcast(float v) { return vdupq_n_f32(v); }
  static float First(F v) { return vgetq_lane_f32(v, 0); }
  static F Add(F a, F b) { return vaddq_f32(a, b); }
  static F Sub(F a, F b) { return vsubq_f32(a, b); }
  static F Mul(F a, F b) { return vmulq_f32(a, b); }
  static F Div(F a, F b) { return vdivq_f32(a, b); }
  static F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F Negate(F a) { return vnegq_f32(a); }
  // NaN if either is.
  static F Max(F a, F b) { return vmaxq_f32(a, b); }
  static F Min(F a, F b) { return vminq_f32(a, b); }

  // Folds halves until one lane is left: lane i + lane i + 2, then i + 1.
  static float SumLanes(F v) {
    const float32x2_t c = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
  }
  static float MaxLanes(F v) { return vmaxvq_f32(v); }

  static I LoadInt(const void* p) {
    return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
  }
  static I LoadUint16(const void* p) {
    const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(static_cast<const uint8_t*>(p)));
    return vreinterpretq_s32_u32(vmovl_u16(half));
  }
  static I LoadInt8(const void* p) {
    int32_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)))));
  }
  static I LoadUint8(const std::byte* p) {
    uint32_t bytes;
    __builtin_memcpy(&bytes, p, 4);
    const uint16x8_t halves = vmovl_u8(vcreate_u8(bytes));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(halves)));
  }
  static I And(I a, int b) { return vandq_s32(a, vdupq_n_s32(b)); }
  static I Or(I a, I b) { return vorrq_s32(a, b); }
  static I AddInt(I a, int b) { return vaddq_s32(a, vdupq_n_s32(b)); }
  static I SubInt(I a, I b) { return vsubq_s32(a, b); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return vshlq_n_s32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    if constexpr (kBits == 0) return a;  // the instruction cannot shift by 0
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), kBits > 0 ? kBits : 1));
  }
  template <int kBits>
  static I ShiftRightSigned(I a) {
    return vshrq_n_s32(a, kBits);
  }
  static I ShiftLeftBy(I a, int bits) { return vshlq_s32(a, vdupq_n_s32(bits)); }
  static I ShiftRightBy(I a, int bits) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-bits)));
  }
  static F ToFloat(I a) { return vcvtq_f32_s32(a); }
  static F AsFloat(I a) { return vreinterpretq_f32_s32(a); }
  static I Round(F a) { return vcvtnq_s32_f32(a); }
  // 2^n for n in [-126, 127].
  static F PowerOfTwo(I n) { return AsFloat(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }

  // table[low four bits of each lane], looked up as the four bytes of each float.
  static F Lookup(I code, const float* table) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(table);
    const uint8x16x4_t entries = {
        {vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
    const I first = vmulq_n_s32(And(code, 0x0f), 0x04040404);
    const I index = vaddq_s32(first, vdupq_n_s32(0x03020100));
    return vreinterpretq_f32_u8(vqtbl4q_u8(entries, vreinterpretq_u8_s32(index)));
  }
  // The low four bits plus kOffset, as f32.
  template <int kOffset>
  static F Nibble(I code) {
    const I masked = And(code, 0x0f);
    return ToFloat(kOffset == 0 ? masked : AddInt(masked, kOffset));
  }

  static F LoadHalf(const std::byte* p) {
    const uint8x8_t bytes = vld1_u8(reinterpret_cast<const uint8_t*>(p));
    return vcvt_f32_f16(vreinterpret_f16_u8(bytes));
  }
  static F BroadcastHalf(const std::byte* p) {
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof(half));
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
  }
  static F LoadBFloat16(const std::byte* p) { return AsFloat(ShiftLeftBy(LoadUint16(p), 16)); }
  // Read as a half, a code has its value times 2^-8; NaN needs all of its bits set.
  static F LoadE4m3(const std::byte* p) {
    uint32_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const int16x4_t codes = vget_low_s16(vmovl_s8(vcreate_s8(bytes)));
    const int16x4_t halves = vand_s16(vshl_n_s16(codes, 7), vdup_n_s16(-0x4001));
    const int16x4_t nan = vdup_n_s16(0x7f);
    const uint16x4_t is_nan = vceq_s16(vand_s16(codes, nan), nan);
    const uint16x4_t all = vorr_u16(vreinterpret_u16_s16(halves), is_nan);
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(all)), 256);
  }
  static void StoreHalf(std::byte* p, F v) {
    const float16x4_t half = vcvt_f16_f32(v);
    __builtin_memcpy(p, &half, sizeof(half));
  }
  static void StoreBFloat16(std::byte* p, F v) {
    float values[4];
    uint16_t words[4];
    Store(values, v);
    for (int i = 0; i < 4; ++i) words[i] = FloatToBFloat16(values[i]);
    __builtin_memcpy(p, words, sizeof(words));
  }
};

}  // namespace
}  // namespace tokamak::cpu
