// Helpers of the grammar tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace tokamak::grammar {

// A vocabulary of all single bytes and a few more tokens.
inline std::vector<std::string> BytesAnd(std::vector<std::string> more) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

inline std::shared_ptr<const Grammar> Compiled(const GrammarSpec& spec) {
  auto grammar = CompileGrammar(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.status().ToString();
  return grammar.ok() ? *grammar : nullptr;
}

inline GrammarSpec Spec(GrammarSpec::Kind kind, std::string_view text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = text;
  return spec;
}

inline bool Matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  static const auto* const kVocabulary =
      new std::shared_ptr<const Vocabulary>(Vocabulary::Make(BytesAnd({})));
  Matcher matcher(grammar, *kVocabulary);
  return matcher.AcceptBytes(text) && matcher.complete();
}

// The mask as a list of what each token may do.
inline std::vector<bool> MaskOf(Matcher& matcher, size_t size) {
  std::vector<uint32_t> words((size + 31) / 32, ~uint32_t{0});
  const Status status = matcher.FillMask(words);
  EXPECT_TRUE(status.ok() || matcher.complete()) << status.ToString();
  std::vector<bool> result(size);
  for (size_t t = 0; t < size; ++t) result[t] = (words[t / 32] >> (t % 32) & 1) != 0;
  return result;
}

// Checks the mask after `prefix` against the grammar, byte by byte.
inline void CheckMask(const std::shared_ptr<const Grammar>& grammar,
                      const std::vector<std::string>& tokens, std::string_view prefix) {
  const auto vocabulary = Vocabulary::Make(tokens);
  Matcher matcher(grammar, vocabulary);
  ASSERT_TRUE(matcher.AcceptBytes(prefix)) << prefix;
  const std::vector<bool> mask = MaskOf(matcher, tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    Matcher other(grammar, vocabulary);
    ASSERT_TRUE(other.AcceptBytes(prefix));
    bool allowed = !tokens[t].empty();
    for (const char byte : tokens[t]) {
      allowed = allowed && other.AcceptBytes(std::string_view(&byte, 1));
    }
    EXPECT_EQ(mask[t], allowed) << "after \"" << prefix << "\": \"" << tokens[t] << "\"";
  }
}

}  // namespace tokamak::grammar
