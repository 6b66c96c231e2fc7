// Tests the bounds on matchers' work and memory, and what they leave to the next one.
#include "grammar/automaton.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
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

TEST(Automaton, AFailedMaskLeavesNothingWrongBehind) {
  const auto grammar = HardGrammar();
  const std::vector<std::string> tokens =
      BytesAnd({"xx", std::string(20, 'x'), std::string(21, 'x'), "x\"", "\"x"});
  const auto vocabulary = Vocabulary::Make(tokens);
  int failures = 0;
  Matcher matcher(grammar, vocabulary);
  ASSERT_TRUE(matcher.AcceptBytes("\""));
  for (int i = 0; i < 100; ++i) {
    std::vector<uint32_t> mask((tokens.size() + 31) / 32);
    Matcher clone = matcher.Clone();
    if (!(i % 2 == 0 ? clone : matcher).FillMask(mask).ok()) {
      ++failures;
      EXPECT_EQ(mask, std::vector<uint32_t>(mask.size(), 0));
      continue;
    }
    const auto allowed = [&](size_t token) { return (mask[token / 32] >> (token % 32) & 1) != 0; };
    EXPECT_TRUE(allowed(256) && allowed(257) && allowed(259));
    EXPECT_FALSE(allowed(258) || allowed(260));
    break;
  }
  EXPECT_GT(failures, 0);
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

  // An automaton is not shared after a call that took nearly all of its work, because other answers
  // would then depend on it.
  const auto hard = HardGrammar();
  Automaton automaton(hard->impl(), vocabulary);
  const Expr state = automaton.Advance(hard->impl().start, "\"");
  EXPECT_TRUE(automaton.reusable());
  EXPECT_FALSE(automaton.FillMask(state, mask).ok());
  EXPECT_FALSE(automaton.reusable());
  EXPECT_LT(automaton.bytes(), hard->bytes() + (size_t{24} << 20));
  Automaton ahead(hard->impl(), vocabulary);
  EXPECT_FALSE(
      ahead.FillMask(ahead.Advance(hard->impl().start, "\""), mask, Automaton::kWorkAhead).ok());
  EXPECT_FALSE(ahead.reusable());
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
