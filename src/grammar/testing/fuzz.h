// The body of the grammars' fuzz targets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace tokamak::grammar {

// Compiles any text. If that works, follows a few tokens: a mask must allow exactly the tokens
// whose bytes fit, and whatever is allowed must keep the answer able to go on or end.
inline void FuzzGrammar(GrammarSpec spec, const uint8_t* data, size_t size) {
  if (size == 0) return;
  static const auto* const kTokens = [] {
    auto* tokens = new std::vector<std::string>;
    for (int b = 0; b < 256; ++b) tokens->emplace_back(1, static_cast<char>(b));
    for (const char* more :
         {"ab", "{\"", "\":", ", \"", "true", "12", "\\u00", "é", "]}", "aaaa"}) {
      tokens->emplace_back(more);
    }
    return tokens;
  }();
  static const auto* const kVocabulary =
      new std::shared_ptr<const Vocabulary>(Vocabulary::Make(*kTokens));
  spec.text.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto grammar = CompileGrammar(spec);
  if (!grammar.ok()) {
    if (grammar.status().message().empty()) std::abort();
    return;
  }
  Matcher matcher(*grammar, *kVocabulary);
  std::string text;
  uint32_t choice = data[0];
  for (int step = 0; step < 12; ++step) {
    std::vector<uint32_t> mask((kTokens->size() + 31) / 32);
    if (!matcher.FillMask(mask).ok()) return;
    std::vector<int32_t> allowed;
    for (size_t t = 0; t < kTokens->size(); ++t) {
      const bool in_mask = (mask[t / 32] >> (t % 32) & 1) != 0;
      if (in_mask) allowed.push_back(static_cast<int32_t>(t));
      if (t % 16 != static_cast<size_t>(step)) continue;
      Matcher other(*grammar, *kVocabulary);
      if (!other.AcceptBytes(text)) return;  // more work than one call may take
      if (other.AcceptBytes((*kTokens)[t]) != in_mask) std::abort();
    }
    if (allowed.empty() && !matcher.finished()) std::abort();
    if (allowed.empty()) return;
    choice = choice * 1103515245 + 12345;
    const int32_t token = allowed[(choice >> 8) % allowed.size()];
    if (!matcher.Accept(token)) std::abort();
    text += (*kTokens)[static_cast<size_t>(token)];
  }
}

}  // namespace tokamak::grammar
