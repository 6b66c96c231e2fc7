// Strings to tokenize, the same on every machine and in tests/golden/tokenizer_strings.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tokamak::testing {

// A hard string: many scripts, emoji sequences, combining marks, all kinds of white space, digits,
// contractions, special tokens in the text. Not always valid UTF-8.
std::string TestString(uint64_t index);

// `count` strings of four kinds in turn: hard ones; pieces of a multilingual corpus with special
// tokens between them; invented words that resemble those languages; and characters of all of
// Unicode, each at least once in 100,000 strings. `folder` is tests/golden/strings, with the
// corpus, the special tokens and the characters.
std::vector<std::string> VariedStrings(const std::string& folder, uint64_t count);

// 32-bit FNV-1a. The goldens hold it instead of ids and texts.
uint32_t Fnv32(std::string_view bytes);
inline uint32_t Fnv32(const std::vector<int32_t>& ids) {
  return Fnv32(std::string_view(reinterpret_cast<const char*>(ids.data()), 4 * ids.size()));
}

}  // namespace tokamak::testing
