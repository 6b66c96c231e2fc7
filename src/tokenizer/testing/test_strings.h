// Strings to tokenize, the same on every machine. tests/golden/tokenizer_strings.py makes the same
// ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tokamak::testing {

// The hard string of number `index`: many scripts, emoji sequences, combining marks, white space of
// all kinds, digits, contractions, special tokens in the text. Bytes, not always UTF-8.
std::string TestString(uint64_t index);

// `count` strings, of four kinds in turn: hard ones, pieces of a corpus in many languages with
// special tokens between them, words that do not exist but look as if they were of such languages,
// and characters of all of Unicode, each at least once in 100,000 strings. `folder` has
// the corpus, the special tokens and the characters: tests/golden/strings.
std::vector<std::string> VariedStrings(const std::string& folder, uint64_t count);

// FNV-1a, of 32 bits: what the goldens hold in place of ids and texts.
uint32_t Fnv32(std::string_view bytes);
inline uint32_t Fnv32(const std::vector<int32_t>& ids) {
  return Fnv32(std::string_view(reinterpret_cast<const char*>(ids.data()), 4 * ids.size()));
}

}  // namespace tokamak::testing
