#include "quant/e4m3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/file.h"
#include "quant/quantize.h"

namespace tokamak {
namespace {

// By definition a code is (-1)^s · 2^(e - 7) · (1 + m / 8), or (-1)^s · 2^-6 · m / 8 if e = 0.
TEST(E4m3, EveryCodeHasItsValueAndComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto code = static_cast<uint8_t>(bits);
    const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
    const double size = exponent == 0 ? std::pow(2.0, -6) * mantissa / 8
                                      : std::pow(2.0, exponent - 7) * (1 + mantissa / 8.0);
    const float value = E4m3ToFloat(code);
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(value, bits < 128 ? size : -size) << bits;
    }
    EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
    EXPECT_EQ(FloatToE4m3(value), code) << bits;
  }
}

TEST(E4m3, ConvertsAsMlDtypesDoesAfterClipping) {
  const Result<std::string> golden =
      ReadWholeFile(TOKAMAK_SOURCE_DIR "/tests/golden/quant/e4m3.bin", 1 << 20);
  ASSERT_TRUE(golden.ok()) << golden.status().ToString();
  ASSERT_GT(golden->size(), 256u * 4);
  const char* at = golden->data();
  for (int code = 0; code < 256; ++code, at += 4) {
    float expected;
    std::memcpy(&expected, at, 4);
    const float got = E4m3ToFloat(static_cast<uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << code;
    }
  }
  for (; at < golden->data() + golden->size(); at += 8) {
    float value;
    uint32_t code;
    std::memcpy(&value, at, 4);
    std::memcpy(&code, at + 4, 4);
    ASSERT_EQ(FloatToE4m3(value), code) << value;
  }
}

TEST(E4m3, SaturatesAndKeepsNan) {
  for (const float large : {448.0f, 449.0f, 464.0f, 1e9f, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(E4m3ToFloat(FloatToE4m3(large)), 448) << large;
    EXPECT_EQ(E4m3ToFloat(FloatToE4m3(-large)), -448) << large;
  }
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu}) {
    EXPECT_EQ(FloatToE4m3(std::bit_cast<float>(bits)), (bits >> 24 & 0x80u) | 0x7f) << bits;
  }
}

// Rows may start at any byte and have any size.
TEST(E4m3, RowsAreConvertedElementByElement) {
  const float values[] = {0.3f, -500, 17, 1e-4f, -0.0f};
  uint8_t codes[6] = {};
  QuantizeRow(DType::kF8E4M3, values, 5, codes + 1);
  float back[5];
  DequantizeRow(DType::kF8E4M3, codes + 1, 5, back);
  const float expected[] = {0.3125f, -448, 16, 0, -0.0f};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(codes[1 + i], FloatToE4m3(values[i])) << i;
    EXPECT_EQ(back[i], expected[i]) << i;
  }
  EXPECT_EQ(codes[0], 0);
}

}  // namespace
}  // namespace tokamak
