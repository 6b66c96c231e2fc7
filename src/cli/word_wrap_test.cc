#include "cli/word_wrap.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cwchar>
#include <random>
#include <vector>

namespace tokamak::cli {
namespace {

std::string Wrap(std::string_view text, int columns) {
  WordWrap wrap;
  std::string out = wrap.Append(text, columns);
  return out + wrap.Finish();
}

TEST(WordWrap, BreaksBetweenWordsAndNowhereElse) {
  EXPECT_EQ(Wrap("the quick brown fox", 10), "the quick\nbrown fox");
  EXPECT_EQ(Wrap("the quick brown fox", 80), "the quick brown fox");
  EXPECT_EQ(Wrap("1234567890 abc", 10), "1234567890\nabc");
  EXPECT_EQ(Wrap("a  b\n\n  c d ", 80), "a  b\n\n  c d ");
  EXPECT_EQ(Wrap("- one two\n    three four", 11), "- one two\n    three\nfour");
}

TEST(WordWrap, DoesNotBreakWordsLongerThanALine) {
  // The URLs take 27 and 23 columns: 7 and 3 of the third line.
  EXPECT_EQ(Wrap("see https://example.org/a/bcdef now", 10),
            "see\nhttps://example.org/a/bcdef\nnow");
  EXPECT_EQ(Wrap("see https://example.org/a/b now okay", 10),
            "see\nhttps://example.org/a/b now\nokay");
}

TEST(WordWrap, CountsWideAndCombiningCharacters) {
  EXPECT_EQ(Wrap("日本語日本語", 6), "日本語\n日本語");
  EXPECT_EQ(Wrap("日本語日本語", 5), "日本\n語日\n本語");
  EXPECT_EQ(Wrap("ab日本", 5), "ab日\n本");
  // "é" as a letter and a combining accent takes one column.
  EXPECT_EQ(Wrap("e\u0301e\u0301e\u0301 e\u0301e\u0301", 6),
            "e\u0301e\u0301e\u0301 e\u0301e\u0301");
  EXPECT_EQ(Wrap("日\u0301 bcde", 5), "日\u0301\nbcde");
}

TEST(WordWrap, CountsTabsToTheNextStop) {
  EXPECT_EQ(Wrap("a\tbc", 10), "a\tbc");
  EXPECT_EQ(Wrap("a\tbc", 9), "a\nbc");
}

TEST(WordWrap, WrapsNothingWithoutATerminal) {
  EXPECT_EQ(Wrap("the quick  \nbrown", 0), "the quick  \nbrown");
}

TEST(WordWrap, HoldsBackAtMostOneWord) {
  WordWrap wrap;
  EXPECT_EQ(wrap.Append("Hel", 40), "");
  EXPECT_EQ(wrap.Append("lo wor", 40), "Hello");
  EXPECT_EQ(wrap.Append("ld.\n", 40), " world.\n");
  EXPECT_EQ(wrap.Append("日", 40), "日");
  EXPECT_EQ(wrap.Append("x", 40), "");
  EXPECT_EQ(wrap.Finish(), "x");
}

TEST(WordWrap, FollowsTheWidthOfTheTerminal) {
  WordWrap wrap;
  EXPECT_EQ(wrap.Append("one two", 5), "one");
  EXPECT_EQ(wrap.Append(" three", 0), "\ntwo three");
  EXPECT_EQ(wrap.Append(" four", 5), "");
  EXPECT_EQ(wrap.Finish(), " four");
}

// The width of a text according to the C library.
int Columns(const std::string& text) {
  std::vector<wchar_t> wide(text.size() + 1);
  const size_t length = std::mbstowcs(wide.data(), text.c_str(), wide.size());
  return ::wcswidth(wide.data(), length);
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

TEST(WordWrap, FillsLinesHoweverTheTextIsSplit) {
  ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr);
  const std::vector<std::string> letters = {"a", "b", "é", "e\u0301", "ß", "日", "語", "한", "ж"};
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    const int columns = 8 + static_cast<int>(below(30));
    std::string text;
    WordWrap pieces;
    std::string out;
    for (size_t words = below(40); words > 0; --words) {
      for (size_t n = 1 + below(5); n > 0; --n) {
        const std::string& letter = letters[below(letters.size())];
        text += letter;
        out += pieces.Append(letter, columns);
      }
      text += ' ';
      out += pieces.Append(" ", columns);
    }
    out += pieces.Finish();
    ASSERT_EQ(out, Wrap(text, columns)) << text;
    const std::vector<std::string> lines = Split(out, '\n');
    std::string joined;  // only blanks and line ends may differ
    for (const char c : out) {
      if (c != ' ' && c != '\n') joined += c;
    }
    std::erase(text, ' ');
    ASSERT_EQ(joined, text);
    for (const std::string& line : lines) {
      const size_t end = line.find_last_not_of(' ');
      ASSERT_LE(Columns(line.substr(0, end == std::string::npos ? 0 : end + 1)), columns) << line;
    }
    for (size_t i = 1; i < lines.size(); ++i) {
      // Its first word, of at most 10 columns, did not fit on the previous line.
      ASSERT_GT(Columns(lines[i - 1]) + 1 + 10, columns) << out;
    }
  }
}

}  // namespace
}  // namespace tokamak::cli
