#include "base/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tokamak {
namespace {

using namespace std::string_literals;

// Expected values from Python 3.11's bytes.decode("utf-8", errors="replace").encode().
TEST(Utf8, ReplacesMaximalSubpartsAsPythonDoes) {
  const std::string r(kReplacementUtf8);
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain \0 text"s, "plain \0 text"s},
      {"\x80", r},
      {"\xC0\x80", r + r},
      {"\xC1\xBF", r + r},
      {"\xC3", r},
      {"\xC3(", r + "("},
      {"\xE2\x82", r},
      {"\xE2\x82x", r + "x"},
      {"\xE2x\x82", r + "x" + r},
      {"\xED\xA0\x80", r + r + r},                          // a lone surrogate
      {"\xED\xA0\xBD\xED\xB8\x80", r + r + r + r + r + r},  // a surrogate pair
      {"\xE0\x80\x80", r + r + r},
      {"\xF0\x9F\x98", r},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", r + "\xF0\x9F\x98\x80"},
      {"\xF0\x80\x80\x80", r + r + r + r},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF8\x88\x80\x80\x80", r + r + r + r + r},
      {"\xFE\xFF", r + r},
      {"a\xF1\x80\x80\xE1\x80\xC2"
       "b\x80"
       "c\x80\xBF"
       "d",
       "a" + r + r + r + "b" + r + "c" + r + r + "d"},  // The Unicode Standard, table 3-8
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(ToValidUtf8(bytes), expected) << ::testing::PrintToString(bytes);
  }
}

TEST(Utf8, StreamInAnyPiecesEqualsTheWhole) {
  std::mt19937_64 random(7);
  // Bytes that make truncated and overlong forms likely.
  const std::string alphabet = "ab\x80\x90\xBF\xC2\xE0\xE2\xA0\xED\xF0\x9F\xF4\x8F\xFF\0"s;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes, out;
    for (size_t n = random() % 12; n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    Utf8StreamDecoder decoder;
    for (size_t i = 0; i < bytes.size();) {
      const size_t n = random() % 4;
      std::string step;
      decoder.Append(std::string_view(bytes).substr(i, n), step);
      EXPECT_EQ(ValidUtf8Prefix(step), step.size());
      out += step;
      i += n;
    }
    decoder.Flush(out);
    ASSERT_EQ(out, ToValidUtf8(bytes)) << ::testing::PrintToString(bytes);
  }
}

TEST(Utf8, CodePointsGoThereAndBack) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendCodePoint(c, text);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size()) << c;
    ASSERT_EQ(Utf8Length(text[0]), text.size()) << c;
    size_t offset = 0;
    ASSERT_EQ(NextCodePoint(text, offset), c);
    ASSERT_EQ(offset, text.size());
  }
}

}  // namespace
}  // namespace tokamak
