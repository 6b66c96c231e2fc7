#include "base/text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tokamak {
namespace {

using Pieces = std::vector<std::string_view>;

TEST(Text, TrimTakesSpaceFromTheEndsOnly) {
  EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(Trim(" \n"), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(Text, SplitKeepsEmptyPieces) {
  EXPECT_EQ(Split("a,,b,", ','), (Pieces{"a", "", "b", ""}));
  EXPECT_EQ(Split("", ','), (Pieces{""}));
}

TEST(Text, OnlyLettersOfAsciiHaveCases) {
  EXPECT_EQ(Lower("AZaz[@\xC3\x84"), "azaz[@\xC3\x84");
  EXPECT_TRUE(EqualIgnoringCase("Content-Type", "content-type"));
  EXPECT_FALSE(EqualIgnoringCase("content", "content-type"));
  EXPECT_FALSE(EqualIgnoringCase("[", "{"));
}

TEST(Text, ANumberIsTheWholeText) {
  EXPECT_EQ(ParseNumber<int32_t>("-12"), -12);
  EXPECT_EQ(ParseNumber<uint32_t>("fF", 16), 255u);
  EXPECT_EQ(ParseNumber<double>("1e3"), 1000);
  for (const char* text : {"", " 1", "1 ", "1x", "2147483648"}) {
    EXPECT_EQ(ParseNumber<int32_t>(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tokamak
