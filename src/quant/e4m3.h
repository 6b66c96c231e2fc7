// Converts FP8 E4M3 (1 sign bit, 4 exponent bits, 3 mantissa bits) to and from f32. This is OCP's
// type, which torch calls float8_e4m3fn: there are no infinities, one NaN per sign, and the largest
// value is 448.
//
// To f32: exact. From f32: rounds to nearest, ties to even; larger magnitudes, infinity included,
// become 448 of their sign; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace tokamak {

constexpr float E4m3ToFloat(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  uint32_t bits = 0;
  if (magnitude == 0x7fu) {  // NaN
    bits = 0x7fc00000u;
  } else if (magnitude >= 0x08u) {  // normal: rebias the exponent by 127 - 7
    bits = (magnitude << 20) + (120u << 23);
  } else {  // zero or denormal
    bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f);
  }
  return std::bit_cast<float>(sign | bits);
}

constexpr uint8_t FloatToE4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code = 0;
  if (magnitude > 0x7f800000u) {  // NaN
    code = 0x7fu;
  } else if (magnitude >= 0x43e00000u) {  // 448 and above
    code = 0x7eu;
  } else if (magnitude >= 0x3c800000u) {  // 2^-6 and above: normal
    const uint32_t rebiased = magnitude - (120u << 23);
    code = (rebiased + 0x0007ffffu + ((rebiased >> 20) & 1)) >> 20;
  } else if (magnitude > 0x3a800000u) {  // above 2^-10: a denormal, or rounds up to 2^-6
    // The value is significand · 2^(exponent - 150) and the result counts units of 2^-9.
    const uint32_t shift = 141 - (magnitude >> 23);  // 21 ... 24
    const uint32_t significand = (magnitude & 0x007fffffu) | 0x00800000u;
    const uint32_t half_way = (1u << (shift - 1)) - 1;
    code = (significand + half_way + ((significand >> shift) & 1)) >> shift;
  } else {  // at most half of the smallest denormal
    code = 0;
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace tokamak
