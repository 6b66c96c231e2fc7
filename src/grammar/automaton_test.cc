// Tests the bounds on matchers' work and memory, and what they leave to the next one.
#include "grammar/automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/testing/check_masks.h"

namespace tokamak::grammar {
namespace {

using Kind = GrammarSpec::Kind;

// The masks of this one take much work, because at each character 500 patterns may begin.
std::shared_ptr<const Grammar> HardGrammar() {
  std::string pattern = "|";
  for (int i = 0; i < 500; ++i) {
    pattern += std::string(i == 0 ? "" : "|") + static_cast<char>('A' + i % 26) + ".{" +
               std::to_string(i % 17) + "}[a-" + static_cast<char>('b' + i % 20) + "]";
  }
  return Compiled(
      Spec(Kind::kJsonSchema,
           "{\"type\": \"string\", \"maxLength\": 20, \"pattern\": \"" + pattern + "\"}"));
}

// The tokens are all texts of 1 to 12 of the letters a and b, the empty one as "c".
std::vector<std::string> TextsOfTwoLetters() {
  std::vector<std::string> tokens = {"c"};
  for (size_t i = 0; tokens.size() < (size_t{1} << 13) - 1; ++i) {
    for (const char c : {'a', 'b'}) tokens.push_back((i == 0 ? "" : tokens[i]) + c);
  }
  return tokens;
}

// Must know where each of the last 60 letters was an a, so each "ab" makes masks harder.
std::shared_ptr<const Grammar> GrammarThatHardens() {
  return Compiled(Spec(Kind::kRegex, "(a|b)*a(a|b){60}"));
}

TEST(Automaton, AFailedMaskLeavesNothingWrongBehind) {
  const auto grammar = GrammarThatHardens();
  const std::vector<std::string> tokens = TextsOfTwoLetters();
  const auto vocabulary = Vocabulary::Make(tokens);
  Matcher matcher(grammar, vocabulary);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "ab";
  ASSERT_TRUE(matcher.AcceptBytes(text));
  std::vector<uint32_t> mask((tokens.size() + 31) / 32);
  for (int i = 0; i < 2; ++i) {
    Matcher clone = matcher.Clone();
    for (Matcher* failing : {&clone, &matcher}) {
      EXPECT_FALSE(failing->FillMask(mask).ok());
      EXPECT_EQ(mask, std::vector<uint32_t>(mask.size(), 0));
    }
  }
  const std::string easy = "a" + std::string(58, 'b');
  ASSERT_TRUE(matcher.AcceptBytes(easy));
  Matcher other(grammar, vocabulary);
  ASSERT_TRUE(other.AcceptBytes(text + easy));
  EXPECT_EQ(MaskOf(matcher, tokens.size()), MaskOf(other, tokens.size()));
}

// The outcome of each mask of an answer that goes on with these tokens, up to the first error.
std::vector<std::vector<uint32_t>> MasksOf(Matcher& matcher, size_t vocab_size,
                                           const std::vector<int32_t>& tokens, bool looks_ahead) {
  std::vector<std::vector<uint32_t>> masks;
  std::vector<uint32_t> mask((vocab_size + 31) / 32);
  for (const int32_t token : tokens) {
    if (looks_ahead) {  // at the next tokens, and at others
      for (const int32_t other : {token, token + 1}) {
        Matcher clone = matcher.Clone();
        for (int i = 0; i < 3 && clone.Accept(other); ++i) (void)clone.FillMask(mask);
      }
    }
    if (!matcher.FillMask(mask).ok()) break;
    masks.push_back(mask);
    EXPECT_TRUE(matcher.Accept(token));
  }
  return masks;
}

// An answer may stay near the bound for long: its end depends on its text alone.
TEST(Automaton, WhatElseWasFoundDoesNotDecideWhetherAMaskFails) {
  const auto grammar = GrammarThatHardens();
  const std::vector<std::string> texts = TextsOfTwoLetters();
  const auto vocabulary = Vocabulary::Make(texts);
  const auto find = [&](const char* text) {
    return static_cast<int32_t>(std::find(texts.begin(), texts.end(), text) - texts.begin());
  };
  const std::vector<int32_t> tokens(40, find("ab"));
  Matcher plain(grammar, vocabulary);
  const auto expected = MasksOf(plain, texts.size(), tokens, false);
  ASSERT_GT(expected.size(), 2u);
  ASSERT_LT(expected.size(), tokens.size()) << "no mask fails";
  {
    Matcher matcher(grammar, vocabulary);
    EXPECT_EQ(MasksOf(matcher, texts.size(), tokens, true), expected) << "with looks ahead";
  }
  {  // Leaves what it found to the next one.
    Matcher easy(grammar, vocabulary);
    const std::vector<int32_t> few(expected.size() / 2, find("ab"));
    EXPECT_EQ(MasksOf(easy, texts.size(), few, true).size(), few.size());
  }
  for (const bool looks_ahead : {false, true}) {
    Matcher matcher(grammar, vocabulary);
    EXPECT_EQ(MasksOf(matcher, texts.size(), tokens, looks_ahead), expected) << "after another";
  }
}

// In every pool a call takes the same work alone, and never more than was counted for all calls.
TEST(Automaton, ACallTakesNoMoreWorkAloneThanAmongOthers) {
  const std::vector<std::string> tokens =
      BytesAnd({"ab", "aab", "abc", "{\"", "\":", "\"}", "[[", "]]", "aaaa", "12", "-1", ", \""});
  const auto vocabulary = Vocabulary::Make(tokens);
  const std::vector<GrammarSpec> specs = {
      Spec(Kind::kRegex, "(a|b)*a(a|b){20}c?"),
      Spec(Kind::kRegex, "((a|ab)(c|bcd)*){1,9}"),
      Spec(Kind::kGbnf, "root ::= \"a\" root \"b\" | \"a\" root | [a-c]+ | \"(\" root \")\""),
      Spec(Kind::kJsonSchema, "{}"),
      Spec(Kind::kJsonSchema,
           R"({"type": "string", "pattern": "(ab?)*c[a-d]{3}", "minLength": 12, "maxLength": 40})"),
      Spec(Kind::kJsonSchema, R"({"type": "array", "items": {"type": "string", "minLength": 2,
           "allOf": [{"pattern": "^a"}, {"pattern": "b$"}, {"not": {"enum": ["ab", "aab"]}}]}})"),
      Spec(Kind::kJsonSchema, R"({"type": "object", "properties": {"ab": {"type": "integer"}},
           "patternProperties": {"^a+": {"type": "number"}, "b": {"minimum": -12}}})")};
  std::mt19937_64 random(7);
  uint64_t among_others = 0, alone = 0;
  for (const GrammarSpec& spec : specs) {
    SCOPED_TRACE(spec.text);
    const auto grammar = Compiled(spec);
    const Grammar::Impl& impl = grammar->impl();
    Automaton quiet(impl, vocabulary), busy(impl, vocabulary);
    Expr in_quiet = impl.start, in_busy = impl.start;
    std::vector<uint32_t> mask((tokens.size() + 31) / 32), same = mask;
    for (int i = 0; i < 60; ++i) {
      const auto any = [&] { return std::string_view(tokens[random() % tokens.size()]); };
      for (int k = 0; k < 4; ++k) {  // looks ahead
        const Expr ahead = busy.Advance(busy.Advance(in_busy, any()), any());
        if (ahead != kNothing) (void)busy.FillMask(ahead, mask);
      }
      const Status status = busy.FillMask(in_busy, mask);
      ASSERT_FALSE(busy.failed()) << "this test needs easier grammars";
      Automaton from_busy(impl, vocabulary), from_quiet(impl, vocabulary);
      const Expr state = from_busy.Import(busy, in_busy);
      EXPECT_EQ(from_busy.FillMask(state, same).ok(), status.ok());
      EXPECT_EQ(same, mask);
      (void)from_quiet.FillMask(from_quiet.Import(quiet, in_quiet), same);
      EXPECT_EQ(from_quiet.work(), from_busy.work());
      EXPECT_LE(from_busy.work(), busy.work());
      among_others += busy.work(), alone += from_busy.work();
      std::vector<std::string_view> next;
      for (size_t t = 0; t < tokens.size(); ++t) {
        if ((mask[t / 32] >> (t % 32) & 1) != 0) next.push_back(tokens[t]);
      }
      if (next.empty()) break;
      const std::string_view text = next[random() % next.size()];
      in_busy = busy.Advance(in_busy, text);
      in_quiet = quiet.Advance(in_quiet, text);
      ASSERT_TRUE(in_busy != kNothing && in_quiet != kNothing);
    }
  }
  EXPECT_GT(alone, 0u);
  EXPECT_GT(among_others, alone);
}

TEST(Automaton, MatchersLeaveLittleBehind) {
  const std::vector<std::string> tokens = BytesAnd({});
  const auto vocabulary = Vocabulary::Make(tokens);
  std::vector<uint32_t> mask((tokens.size() + 31) / 32);
  const auto easy = Compiled(Spec(Kind::kGbnf, "root ::= \"a\" root \"b\" | \"c\""));
  {
    std::vector<Matcher> waiting;
    for (int i = 0; i < 8; ++i) waiting.emplace_back(easy, vocabulary);
  }
  EXPECT_EQ(easy->impl().idle_bytes(), 0u);
  { EXPECT_TRUE(Matcher(easy, vocabulary).FillMask(mask).ok()); }
  EXPECT_GT(easy->impl().idle_bytes(), 0u);
  {
    std::vector<Matcher> large;
    for (int i = 0; i < 6; ++i) {
      large.emplace_back(easy, vocabulary);
      EXPECT_TRUE(large.back().AcceptBytes(std::string(i * 10000, 'a')));
    }
  }
  EXPECT_LE(easy->impl().idle_bytes(), 2 * easy->bytes() + (4 << 20));

  // An automaton is not shared if it could not do much more.
  const auto hard = HardGrammar();
  Automaton automaton(hard->impl(), vocabulary);
  const Expr state = automaton.Advance(hard->impl().start, "\"");
  EXPECT_TRUE(automaton.reusable());
  EXPECT_FALSE(automaton.FillMask(state, mask).ok());
  EXPECT_FALSE(automaton.reusable());
  EXPECT_LT(automaton.bytes(), hard->bytes() + (size_t{24} << 20));
}

TEST(Automaton, LongAnswersOutliveWhatWasFoundForThem) {
  const auto compiled = Compiled(Spec(Kind::kGbnf, "root ::= \"a\" root \"b\" | \"c\""));
  // The grammar has as little work left as one that took nearly all that compiling may take.
  ExprPool pool = compiled->impl().pool;
  pool.Allow(10);
  const auto grammar = std::make_shared<const Grammar>(
      std::make_unique<Grammar::Impl>(std::move(pool), compiled->impl().start,
                                      compiled->impl().plain_short, compiled->impl().plain));
  Matcher matcher(grammar, Vocabulary::Make(BytesAnd({})));
  std::vector<uint32_t> mask(8);
  const std::string more(20000, 'a');
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(matcher.AcceptBytes(more));
    ASSERT_TRUE(matcher.FillMask(mask).ok()) << i;
  }
  EXPECT_TRUE(matcher.AcceptBytes("cbb"));
}

}  // namespace
}  // namespace tokamak::grammar
