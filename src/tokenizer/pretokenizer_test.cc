#include "tokenizer/pretokenizer_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/sanitizers.h"
#include "base/utf8.h"
#include "tokenizer/splitter.h"
#include "tokenizer/testing/test_strings.h"

namespace tokamak {
namespace {

using ::testing::ElementsAre;

Splitter Make(std::string_view name) {
  const PreTokenizerRule* rule = FindPreTokenizer(name);
  EXPECT_NE(rule, nullptr) << name;
  auto splitter = Splitter::Create(rule->PreTokenizers(), /*leave_bytes=*/true);
  EXPECT_TRUE(splitter.ok()) << name << ": " << splitter.status().ToString();
  return *std::move(splitter);
}

std::vector<std::string> Split(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  RegexScratch scratch;
  const Status status = splitter.Split(text, /*starts=*/true, scratch,
                                       [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return pieces;
}

std::vector<std::string> Split(std::string_view name, std::string_view text) {
  return Split(Make(name), text);
}

TEST(PreTokenizer, UnknownNamesAreUnknown) {
  EXPECT_EQ(FindPreTokenizer("gpt-3"), nullptr);
  EXPECT_EQ(FindPreTokenizer(""), nullptr);
}

TEST(PreTokenizer, PiecesOfEveryRuleAddUpToTheText) {
  for (const std::string_view name : PreTokenizerNames()) {
    const PreTokenizerRule& rule = *FindPreTokenizer(name);
    if (rule.drop_between) continue;
    const Splitter splitter = Make(name);
    for (uint64_t i = 0; i < 200; ++i) {
      const std::string text = ToValidUtf8(testing::TestString(i));
      std::string joined;
      for (const std::string& piece : Split(splitter, text)) {
        EXPECT_FALSE(piece.empty());
        EXPECT_EQ(ValidUtf8Prefix(piece), piece.size());
        joined += piece;
      }
      ASSERT_EQ(joined, text) << name << " " << i;
    }
  }
}

// Also shows that no rule hits PCRE2's limits or takes quadratic time (the test would not end).
TEST(PreTokenizer, LongRunsOfOneKindOfCharacterAreSplit) {
  for (const std::string_view name : PreTokenizerNames()) {
    const Splitter splitter = Make(name);
    RegexScratch scratch;
    for (const std::string unit : {"a", "A", " ", "\n", " \n", "7", "!", "東", "\u0301", "aA", "a ",
                                   "\u3000", "'", "Aー", "\u0E01"}) {
      for (const char* end : {"", "x", "東"}) {
        std::string text;
        while (text.size() < testing::Fewer<size_t>(100000)) text += unit;
        text += end;
        size_t bytes = 0;
        const Status status = splitter.Split(
            text, /*starts=*/true, scratch, [&](std::string_view piece) { bytes += piece.size(); });
        ASSERT_TRUE(status.ok()) << name << " " << unit << ": " << status.ToString();
        if (!FindPreTokenizer(name)->drop_between) {
          ASSERT_EQ(bytes, text.size()) << name << " " << unit;
        }
      }
    }
  }
}

TEST(PreTokenizer, FamiliesSplitDifferently) {
  EXPECT_THAT(Split("gpt-2", "I'll go  12345"), ElementsAre("I", "'ll", " go", " ", " 12345"));
  EXPECT_THAT(Split("gpt-2", "I'LL"), ElementsAre("I", "'", "LL"));
  EXPECT_THAT(Split("smollm", " a12 3"), ElementsAre(" a", "1", "2", " ", "3"));
  EXPECT_THAT(Split("llama-bpe", "I'LL x12345!\n\n y"),
              ElementsAre("I", "'LL", " x", "123", "45", "!\n\n", " y"));
  EXPECT_THAT(Split("qwen2", "x12 (a)"), ElementsAre("x", "1", "2", " (", "a", ")"));
  EXPECT_THAT(Split("qwen35", "e\u0301t"), ElementsAre("e\u0301t"));
  EXPECT_THAT(Split("tekken", "HTTPServer oneTwo"), ElementsAre("HTTPServer", " one", "Two"));
  EXPECT_THAT(Split("gpt-4o", "We'RE ÉcoleÉcole 1234"),
              ElementsAre("We'RE", " École", "École", " ", "123", "4"));
  EXPECT_THAT(Split("kimi-k2", "abc東京def"), ElementsAre("abc", "東京", "def"));
  EXPECT_THAT(Split("deepseek-v3", "abc東京12345 カナ"),
              ElementsAre("abc", "東京", "123", "45", " ", "カナ"));
  EXPECT_THAT(Split("falcon", "a.b 12345"), ElementsAre("a", ".", "b", " ", "123", "45"));
  EXPECT_THAT(Split("superbpe", "go by 1234567 now"),
              ElementsAre("go by ", "1", "234", "567", " now"));
  EXPECT_THAT(Split("tiny_aya", "1234567 12345a"),
              ElementsAre("1", "234", "567", " ", "123", "45", "a"));
  EXPECT_THAT(Split("afmoe", "a12345 b"), ElementsAre("a", "12", "345", " b"));
  EXPECT_THAT(Split("whitespace", " the  cat\n"), ElementsAre("the", "cat"));
  EXPECT_THAT(Split("gemma4", "a b\n\nc"), ElementsAre("a b", "\n\n", "c"));
}

// U+180E is not white space, U+0085 is. PCRE2's own \s disagrees about the first.
TEST(PreTokenizer, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_THAT(Split("gpt-2", "a\u180Eb"), ElementsAre("a", "\u180E", "b"));
  EXPECT_THAT(Split("gpt-2", "a\u0085\u0085b"), ElementsAre("a", "\u0085", "\u0085", "b"));
  EXPECT_THAT(Split("gpt-2", "a \u180E"), ElementsAre("a", " \u180E"));
}

}  // namespace
}  // namespace tokamak
