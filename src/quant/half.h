// Converts IEEE binary16 and bfloat16 to and from f32: exact for every bit pattern, whatever the
// floating-point environment (rounding mode, flush-to-zero) and hardware.
//
// To f32: denormals and infinities are exact; NaN becomes quiet and keeps its payload. From f32:
// rounds to nearest, ties to even; overflow gives infinity, NaN becomes quiet and keeps the top
// bits of its payload. This matches x86 F16C and Arm FCVT.
//
// constexpr, so that device code can call them.
#pragma once

#include <bit>
#include <cstdint>

namespace tokamak {

constexpr float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  uint32_t bits = 0;
  if (magnitude >= 0x7c00u) {  // infinity or NaN
    const uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0;
    bits = 0x7f800000u | (magnitude << 13) | quiet;
  } else if (magnitude >= 0x0400u) {  // normal: rebias the exponent by 127 - 15
    bits = (magnitude << 13) + (112u << 23);
  } else {  // zero or denormal: magnitude · 2^-24, both factors and the product are normal or zero
    bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | bits);
}

constexpr uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {  // NaN
    half = 0x7e00u | ((magnitude >> 13) & 0x01ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above, infinity included
    half = 0x7c00u;
  } else if (magnitude >=
             0x38800000u) {  // 2^-14 and above: a normal half, or rounds up to infinity
    const uint32_t rebiased = magnitude - (112u << 23);
    half = (rebiased + 0x0fffu + ((rebiased >> 13) & 1)) >> 13;
  } else if (magnitude > 0x33000000u) {  // above 2^-25: a denormal half, or rounds up to 2^-14
    // The value is significand · 2^(exponent - 150) and the result counts units of 2^-24.
    const uint32_t shift = 126 - (magnitude >> 23);  // 14 ... 24
    const uint32_t significand = (magnitude & 0x007fffffu) | 0x00800000u;
    const uint32_t half_way = (1u << (shift - 1)) - 1;
    half = (significand + half_way + ((significand >> shift) & 1)) >> shift;
  } else {  // at most half of the smallest denormal
    half = 0;
  }
  return static_cast<uint16_t>(sign | half);
}

constexpr float BFloat16ToFloat(uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16);
}

constexpr uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? ((bits >> 16) | 0x0040u) : rounded);
}

}  // namespace tokamak
