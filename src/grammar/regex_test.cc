#include "grammar/regex.h"

#include <gtest/gtest.h>
#include <regex.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grammar/testing/check_masks.h"

namespace tokamak::grammar {
namespace {

std::shared_ptr<const Grammar> Regex(std::string_view pattern) {
  return Compiled(Spec(GrammarSpec::Kind::kRegex, pattern));
}

std::string RandomPattern(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  if (depth == 0 || pick(4) == 0) {
    static const char* const kAtoms[] = {"a", "b", "c", ".", "[ab]", "[^a]", "\\w", "ab"};
    return kAtoms[pick(8)];
  }
  const std::string inner = RandomPattern(random, depth - 1);
  switch (pick(8)) {
    case 0:
      return "(" + inner + ")*";
    case 1:
      return "(" + inner + ")+";
    case 2:
      return "(" + inner + ")?";
    case 3:
      return "(" + inner + "){" + std::to_string(pick(3)) + "," + std::to_string(2 + pick(2)) + "}";
    case 4:
    case 5:
      return "(" + inner + "|" + RandomPattern(random, depth - 1) + ")";
    default:
      return inner + RandomPattern(random, depth - 1);
  }
}

// POSIX regexec decides about whole texts. Whether a token may come is then a matter of its bytes.
TEST(Regex, AgreesWithPosixOnRandomPatterns) {
  std::mt19937 random(7);
  const std::vector<std::string> tokens = BytesAnd({"aa", "ab", "abc", "ba", "cab", "bb b", "a\n"});
  for (int round = 0; round < 300; ++round) {
    const std::string pattern = RandomPattern(random, 4);
    const auto grammar = Regex(pattern);
    regex_t reference;
    ASSERT_EQ(regcomp(&reference, ("^(" + pattern + ")$").c_str(), REG_EXTENDED | REG_NOSUB), 0);
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) text += "abcd"[random() % 4];
      ASSERT_EQ(Matches(grammar, text), regexec(&reference, text.c_str(), 0, nullptr, 0) == 0)
          << pattern << " on \"" << text << "\"";
    }
    regfree(&reference);
    if (round % 10 == 0) CheckMask(grammar, tokens, "");
  }
}

TEST(Regex, ReadsSyntax) {
  const std::vector<std::pair<const char*, std::pair<const char*, bool>>> cases = {
      {"\\d{2,3}", {"12", true}},
      {"\\d{2,3}", {"1", false}},
      {"\\d{2,}", {"12345", true}},
      {"a{3}", {"aaa", true}},
      {"a{3}", {"aaaa", false}},
      {"[\\x41-\\u0043]+", {"ABC", true}},
      {"\\u{1F600}|\\uD83D\\uDE01", {"\xF0\x9F\x98\x81", true}},
      {"[α-ω]+", {"λόγος", false}},  // ό is outside
      {"[α-ωό]+", {"λόγος", true}},
      {"[^α-ω]", {"λ", false}},
      {"[^α-ω]", {"é", true}},
      {"\\p{Lu}\\p{L}*", {"Éa", true}},
      {"\\p{Lu}\\p{L}*", {"éa", false}},
      {"\\P{L}", {"1", true}},
      {"^abc$", {"abc", true}},
      {"^a|b$", {"b", true}},
      {"(^|x)a($|y)", {"a", true}},
      {"(^|x)a($|y)", {"xay", true}},
      {"(^abc$){1}", {"abc", true}},
      {"(^abc$){1}", {"", false}},
      {"(^a){0,1}b", {"b", true}},
      {"a^", {"a", false}},
      {".", {"\n", false}},
      {".", {"\r", true}},
      {"[]a]", {"]", true}},
      {"[a-]+", {"a-", true}},
      {"a.c", {"a日c", true}},
      {"(?<year>\\d{4})-(?P<m>\\d\\d)", {"2024-05", true}},
      {"a*?b+?", {"aab", true}},
      {"\\.\\*\\/", {".*/", true}},
      {"", {"", true}},
      {"a||b", {"", true}},
  };
  for (const auto& [pattern, example] : cases) {
    if (std::string_view(pattern) == "a^") {
      EXPECT_FALSE(CompileGrammar(Spec(GrammarSpec::Kind::kRegex, pattern)).ok());
      continue;
    }
    EXPECT_EQ(Matches(Regex(pattern), example.first), example.second)
        << pattern << " on " << example.first;
  }
}

TEST(Regex, RefusesWhatItCannotGuaranteeAndSaysWhere) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"a(?=b)", "character 2: lookahead"},
      {"(a)\\1", "character 4: backreferences"},
      {"\\bfoo", "character 1: word boundaries"},
      {"(?i)a", "character 1: flags"},
      {"äß(", "character 3: the group does not end"},
      {"a)", "character 2"},
      {"[a", "character 1: the class does not end"},
      {"*a", "character 1: a quantifier"},
      {"a**", "a quantifier follows"},
      {"a{2,1}", "wrong order"},
      {"a{1,1000000}", "100,000"},
      {"a{x", "\"{\" must start a count"},
      {"\\p{Greek}", "general categories"},
      {"[z-a]", "no range"},
      {"\\q", "this escape"},
      {"(a|^)*", "cannot be repeated"},
      {"\\", "ends with"},
      {"[[:alpha:]]", "POSIX"},
      {"\xff", "UTF-8"},
  };
  for (const auto& [pattern, message] : cases) {
    const auto grammar = CompileGrammar(Spec(GrammarSpec::Kind::kRegex, pattern));
    ASSERT_FALSE(grammar.ok()) << pattern;
    EXPECT_NE(grammar.status().message().find(message), std::string_view::npos)
        << pattern << ": " << grammar.status().message();
  }
}

}  // namespace
}  // namespace tokamak::grammar
