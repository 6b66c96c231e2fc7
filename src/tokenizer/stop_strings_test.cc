#include "tokenizer/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tokamak {
namespace {

using ::testing::HasSubstr;

StopStringMatcher Make(std::vector<std::string> strings) {
  return *StopStringMatcher::Create(std::move(strings));
}

TEST(StopStrings, HoldsBackTextThatMayBeginAStopString) {
  StopStringMatcher matcher = Make({"\nUser:", "###"});
  EXPECT_EQ(matcher.Append("Hello\nUs"), "Hello");
  EXPECT_EQ(matcher.Append("ual #"), "\nUsual ");
  EXPECT_EQ(matcher.Append("#"), "");
  EXPECT_EQ(matcher.Append("x"), "##x");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.Append("done\nUser: more"), "done");
  EXPECT_EQ(matcher.match(), 0);
  EXPECT_EQ(matcher.matched_string(), "\nUser:");
  EXPECT_EQ(matcher.Append("nothing comes after"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopStrings, FlushReturnsTheTextHeldBack) {
  StopStringMatcher matcher = Make({"END"});
  EXPECT_EQ(matcher.Append("the EN"), "the ");
  EXPECT_EQ(matcher.Flush(), "EN");
  EXPECT_EQ(matcher.Append("D"), "D");  // a new stream: the old prefix is forgotten
}

TEST(StopStrings, WithoutStringsEverythingPasses) {
  StopStringMatcher matcher = Make({});
  EXPECT_EQ(matcher.Append("text"), "text");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopStrings, RefusesStringsThatCannotMatch) {
  EXPECT_THAT(std::string(StopStringMatcher::Create({"ok", ""}).status().message()),
              HasSubstr("stop string 1 is empty"));
  EXPECT_THAT(std::string(StopStringMatcher::Create({"\xE2\x82"}).status().message()),
              HasSubstr("UTF-8"));
  EXPECT_FALSE(StopStringMatcher::Create(std::vector<std::string>(65, "x")).ok());
  EXPECT_FALSE(StopStringMatcher::Create({std::string(20000, 'x')}).ok());
}

// By definition: the earliest end of an occurrence; of those that end there, the longest.
std::string Expected(std::string_view text, const std::vector<std::string>& strings, int* match) {
  *match = -1;
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (size_t i = 0; i < strings.size(); ++i) {
      if (strings[i].size() > longest && text.substr(0, end).ends_with(strings[i])) {
        longest = strings[i].size();
        *match = static_cast<int>(i);
      }
    }
    if (longest > 0) return std::string(text.substr(0, end - longest));
  }
  return std::string(text);
}

TEST(StopStrings, ResultDoesNotDependOnHowTheTextIsSplit) {
  std::mt19937_64 random(11);
  const auto word = [&](size_t most) {
    std::string out;
    for (size_t n = 1 + random() % most; n > 0; --n) out += "ab"[random() % 2];
    return out;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> strings;
    for (size_t n = 1 + random() % 3; n > 0; --n) strings.push_back(word(6));
    const std::string text = word(24);
    int match = -1;
    const std::string expected = Expected(text, strings, &match);
    StopStringMatcher matcher = Make(strings);
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const size_t n = 1 + random() % 5;
      out += matcher.Append(std::string_view(text).substr(i, n));
      i += n;
    }
    out += matcher.Flush();
    ASSERT_EQ(out, expected) << text << " stops " << ::testing::PrintToString(strings);
    ASSERT_EQ(matcher.match(), match) << text << " stops " << ::testing::PrintToString(strings);
  }
}

}  // namespace
}  // namespace tokamak
