// SentencePiece's compiled normalization rules: replacements for prefixes of the text, in a
// double-array trie. Format: sentencepiece src/normalizer.cc and the darts-clone library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace tokamak {

class CharsMap {
 public:
  CharsMap() = default;  // no rules
  // `blob`: a 32-bit length, that many bytes of trie units, then zero-terminated replacements.
  static Result<CharsMap> Create(std::string_view blob);

  struct Rule {
    size_t size = 0;  // bytes to replace; 0: no rule applies
    std::string_view replacement;
  };
  // The rule for the longest or shortest matching prefix of `text`.
  Rule Longest(std::string_view text) const { return Find(text, /*shortest=*/false); }
  Rule Shortest(std::string_view text) const { return Find(text, /*shortest=*/true); }

 private:
  Rule Find(std::string_view text, bool shortest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace tokamak
