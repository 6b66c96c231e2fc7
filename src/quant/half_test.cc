#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tokamak {
namespace {

// The value of a 16-bit float with `mantissa` fraction bits, by definition.
double ValueOf(uint32_t bits, int mantissa) {
  const int exponent_bits = 15 - mantissa;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>((bits & 0x7fff) >> mantissa);
  const double fraction = bits & ((1u << mantissa) - 1);
  const double sign = (bits & 0x8000) ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * INFINITY : std::numeric_limits<double>::quiet_NaN();
  }
  const double significand = exponent == 0 ? fraction : fraction + (1 << mantissa);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa);
}

using ToFloat = float (*)(uint16_t);
using FromFloat = uint16_t (*)(float);

void CheckEveryPattern(int mantissa, ToFloat to_float, FromFloat from_float) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const double expected = ValueOf(bits, mantissa);
    const float got = to_float(pattern);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(to_float(from_float(got)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), expected) << bits;
    ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(from_float(got), pattern) << bits;
  }
}

// For each pair of neighbours: just below the middle, the middle (even wins), just above.
void CheckEveryRounding(int mantissa, FromFloat from_float) {
  const uint32_t infinity = 0x7fffu & ~((1u << mantissa) - 1);
  for (uint32_t low = 0; low < infinity; ++low) {
    const double a = ValueOf(low, mantissa);
    // The largest value rounds to infinity as if the next power of two were representable.
    const double b =
        low + 1 < infinity ? ValueOf(low + 1, mantissa) : 2 * a - ValueOf(low - 1, mantissa);
    const auto middle = static_cast<float>((a + b) / 2);
    if (static_cast<double>(middle) != (a + b) / 2) continue;  // too small for f32
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(from_float(middle), even) << low;
    ASSERT_EQ(from_float(std::nextafterf(middle, 0)), low) << low;
    ASSERT_EQ(from_float(std::nextafterf(middle, INFINITY)), low + 1) << low;
    ASSERT_EQ(from_float(-middle), even | 0x8000u) << low;
  }
  EXPECT_EQ(from_float(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(from_float(INFINITY), infinity);
  EXPECT_EQ(from_float(-INFINITY), infinity | 0x8000u);
}

TEST(Half, EveryPatternHasItsValueAndComesBack) { CheckEveryPattern(10, HalfToFloat, FloatToHalf); }
TEST(Half, RoundsToNearestEvenBetweenAllNeighbours) { CheckEveryRounding(10, FloatToHalf); }
TEST(BFloat16, EveryPatternHasItsValueAndComesBack) {
  CheckEveryPattern(7, BFloat16ToFloat, FloatToBFloat16);
}
TEST(BFloat16, RoundsToNearestEvenBetweenAllNeighbours) { CheckEveryRounding(7, FloatToBFloat16); }

TEST(Half, NaNIsQuietAndKeepsItsSign) {
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_EQ(FloatToHalf(nan) & 0xfe00u, (bits >> 16 & 0x8000u) | 0x7e00u);
    EXPECT_EQ(FloatToBFloat16(nan) & 0xffc0u, (bits >> 16 & 0x8000u) | 0x7fc0u);
  }
}

}  // namespace
}  // namespace tokamak
