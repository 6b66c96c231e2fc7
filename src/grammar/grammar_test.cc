#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/testing/check_masks.h"

namespace tokamak::grammar {
namespace {

GrammarSpec Choice(std::vector<std::string> choices) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kChoice;
  spec.choices = std::move(choices);
  return spec;
}

TEST(Grammar, ChoiceMatchesItsTextsOnly) {
  const auto grammar = Compiled(Choice({"yes", "no", "not sure", "ja: größer"}));
  for (const char* text : {"yes", "no", "not sure", "ja: größer"}) {
    EXPECT_TRUE(Matches(grammar, text)) << text;
  }
  for (const char* text : {"", "ye", "yess", "nope", "ja", "Yes"}) {
    EXPECT_FALSE(Matches(grammar, text)) << text;
  }
}

TEST(Grammar, TokensMaySpanWhatTheyLike) {
  const std::vector<std::string> tokens =
      BytesAnd({"ye", "es", "yes", "yess", "no", "not", "not ", " sure", "o", "", "sure"});
  const auto grammar = Compiled(Choice({"yes", "no", "not sure"}));
  for (const char* prefix : {"", "y", "ye", "yes", "n", "no", "not", "not "}) {
    CheckMask(grammar, tokens, prefix);
  }
}

TEST(Grammar, SpecialTokensAreNeverAllowed) {
  const auto vocabulary = Vocabulary::Make(std::vector<std::string>{"", "a", "b"});
  Matcher matcher(Compiled(Spec(GrammarSpec::Kind::kRegex, "[ab]*")), vocabulary);
  EXPECT_EQ(MaskOf(matcher, 3), (std::vector<bool>{false, true, true}));
  EXPECT_FALSE(matcher.Accept(0));
  EXPECT_FALSE(matcher.Accept(3));
  EXPECT_FALSE(matcher.Accept(-1));
  EXPECT_TRUE(matcher.Accept(1));
}

TEST(Grammar, ForcedTextIsWhatEveryMatchGoesOnWith) {
  const auto vocabulary = Vocabulary::Make(BytesAnd({}));
  const auto forced = [&](const GrammarSpec& spec, std::string_view before, size_t most = 100) {
    Matcher matcher(Compiled(spec), vocabulary);
    EXPECT_TRUE(matcher.AcceptBytes(before)) << before;
    return matcher.ForcedText(most);
  };
  const GrammarSpec choice = Choice({"not now", "not sure", "größer", "größe", "x"});
  EXPECT_EQ(forced(choice, ""), "");
  EXPECT_EQ(forced(choice, "n"), "ot ");
  EXPECT_EQ(forced(choice, "n", 2), "ot");
  EXPECT_EQ(forced(choice, "not s"), "ure");
  EXPECT_EQ(forced(choice, "g"), "röße");  // may end there
  EXPECT_EQ(forced(choice, "gr\xC3"), "\xB6ße");
  EXPECT_EQ(forced(choice, "größe"), "");
  EXPECT_EQ(forced(choice, "x"), "");
  // One byte of many is none, even if nothing tells them apart.
  EXPECT_EQ(forced(Spec(GrammarSpec::Kind::kRegex, "a[bc]d"), ""), "a");
  GrammarSpec schema = Spec(GrammarSpec::Kind::kJsonSchema, R"({"type": "object", "properties":
      {"name": {"const": "Ada"}, "age": {"type": "integer"}}, "required": ["name", "age"],
      "additionalProperties": false})");
  EXPECT_EQ(forced(schema, ""), "{");
  EXPECT_EQ(forced(schema, "{\""), "name\":");
  schema.whitespace = GrammarSpec::Whitespace::kNone;
  EXPECT_EQ(forced(schema, ""), "{\"name\":\"Ada\",\"age\":");
  EXPECT_EQ(forced(schema, "{\"name\":\"Ada\",\"age\":7"), "");
}

TEST(Grammar, AClonedMatcherLeavesTheOtherWhereItWas) {
  const std::vector<std::string> tokens = BytesAnd({"no", "not", "ow", "sure"});
  Matcher matcher(Compiled(Choice({"not now", "not sure"})), Vocabulary::Make(tokens));
  EXPECT_TRUE(matcher.AcceptBytes("not "));
  const std::vector<bool> before = MaskOf(matcher, tokens.size());
  {
    Matcher clone = matcher.Clone();
    EXPECT_EQ(MaskOf(clone, tokens.size()), before);
    EXPECT_TRUE(clone.AcceptBytes("sur"));
    EXPECT_NE(MaskOf(clone, tokens.size()), before);
    EXPECT_EQ(MaskOf(matcher, tokens.size()), before);
    Matcher second = clone.Clone();
    EXPECT_TRUE(second.AcceptBytes("e"));
    EXPECT_TRUE(second.finished());
    EXPECT_FALSE(clone.complete());
  }
  EXPECT_EQ(MaskOf(matcher, tokens.size()), before);
  EXPECT_TRUE(matcher.AcceptBytes("now"));
  EXPECT_TRUE(matcher.finished());
}

TEST(Grammar, FindsTheTokensThatATextBeginsWithAndThoseThatBeginWithIt) {
  std::mt19937 random(5);
  const auto draw = [&](size_t longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& c : text) c = static_cast<char>("ab\xC3"[random() % 3]);
    return text;
  };
  std::vector<std::string> tokens = {"", "a", "a", "ab"};  // equal ones, too
  while (tokens.size() < 60) tokens.push_back(draw(5));
  const auto vocabulary = Vocabulary::Make(tokens);
  for (int i = 0; i < 200; ++i) {
    const std::string text = i == 0 ? "" : draw(8);
    std::multiset<int32_t> found, expected;
    vocabulary->ForEachStart(text, [&](int32_t id) { found.insert(id); });
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (!tokens[id].empty() && text.starts_with(tokens[id])) {
        expected.insert(static_cast<int32_t>(id));
      }
    }
    EXPECT_EQ(found, expected) << text;
    found.clear();
    expected.clear();
    if (text.empty()) continue;
    vocabulary->ForEachWithPrefix(text, [&](int32_t id) { found.insert(id); });
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id].starts_with(text)) expected.insert(static_cast<int32_t>(id));
    }
    EXPECT_EQ(found, expected) << text;
  }
}

TEST(Grammar, TellsWhenTheAnswerMayAndMustEnd) {
  const auto vocabulary = Vocabulary::Make(BytesAnd({}));
  Matcher matcher(Compiled(Spec(GrammarSpec::Kind::kRegex, "ab?")), vocabulary);
  EXPECT_FALSE(matcher.complete());
  EXPECT_TRUE(matcher.AcceptBytes("a"));
  EXPECT_TRUE(matcher.complete());
  EXPECT_FALSE(matcher.finished());
  EXPECT_FALSE(matcher.AcceptBytes("c"));
  EXPECT_TRUE(matcher.AcceptBytes("b"));
  EXPECT_TRUE(matcher.finished());
  const std::vector<bool> mask = MaskOf(matcher, 256);
  EXPECT_EQ(std::count(mask.begin(), mask.end(), true), 0);
}

TEST(Grammar, SaysWhenNoTokenFits) {
  const auto vocabulary = Vocabulary::Make(std::vector<std::string>{"a", "b"});
  Matcher matcher(Compiled(Spec(GrammarSpec::Kind::kRegex, "ac")), vocabulary);
  ASSERT_TRUE(matcher.Accept(0));
  std::vector<uint32_t> mask(1, ~0u);
  EXPECT_FALSE(matcher.FillMask(mask).ok());
  EXPECT_EQ(mask[0], 0u);
}

// Masks of long strings of plain text come from tables; these grammars end such strings in all
// ways.
TEST(Grammar, MasksOfPlainTextAreExact) {
  const std::vector<std::string> tokens = BytesAnd({"hello",
                                                    " world",
                                                    "ab\"",
                                                    "\"",
                                                    "ä",
                                                    "日本語",
                                                    "日本語日本語日本語日本語",
                                                    "\xE6\x97",
                                                    "\xA5\xE6",
                                                    "abcdefghijk",
                                                    "abcdefghij",
                                                    "a\nb",
                                                    "\\n",
                                                    "\\",
                                                    "12",
                                                    "aaaaaaaaaaaaaaa",
                                                    "=end",
                                                    "a=",
                                                    "=e",
                                                    "nd"});
  for (const char* pattern :
       {"\"[^\"\\\\\\x00-\\x1f]*\"", "\"[^\"\\\\\\x00-\\x1f]{0,12}\"", "\"[^\"]*", ".*=end",
        "[a-z ]*", "[^\\n]{3,11}", "(.|\\n)*", "\"[^\"\\\\]{0,10}x?", "([^\"\\\\]|\\\\n){0,9}"}) {
    const auto grammar = Compiled(Spec(GrammarSpec::Kind::kRegex, pattern));
    for (const char* prefix : {"", "\"", "\"a", "\"abc", "\"\xE6", "a", "abcdefgh", "x=", "x=en"}) {
      const auto vocabulary = Vocabulary::Make(tokens);
      if (Matcher(grammar, vocabulary).AcceptBytes(prefix)) CheckMask(grammar, tokens, prefix);
    }
  }
}

TEST(Grammar, MatchersOfOneGrammarDoNotDisturbEachOther) {
  const auto vocabulary = Vocabulary::Make(BytesAnd({"ab", "ba"}));
  const auto grammar = Compiled(Spec(GrammarSpec::Kind::kRegex, "(ab)*|(ba)+"));
  Matcher first(grammar, vocabulary), second(grammar, vocabulary);
  EXPECT_TRUE(first.AcceptBytes("a"));
  EXPECT_TRUE(second.AcceptBytes("b"));
  EXPECT_FALSE(first.AcceptBytes("a"));
  EXPECT_TRUE(second.AcceptBytes("a"));
  EXPECT_FALSE(first.complete());
  EXPECT_TRUE(second.complete());
  first = Matcher(grammar, vocabulary);
  EXPECT_TRUE(first.complete());
}

}  // namespace
}  // namespace tokamak::grammar
