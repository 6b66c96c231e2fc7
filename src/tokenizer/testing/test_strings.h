// Strings that are hard to tokenize, the same on every machine: many scripts, emoji sequences,
// combining marks, white space of all kinds, digits, contractions, special tokens in the text,
// bytes that are not UTF-8. tests/golden/tokenizer_strings.py makes the same ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tokamak::testing {

// The string of number `index`: bytes, not always UTF-8.
std::string TestString(uint64_t index);

// FNV-1a, of 32 bits: what the goldens hold in place of ids and texts.
uint32_t Fnv32(std::string_view bytes);
inline uint32_t Fnv32(const std::vector<int32_t>& ids) {
  return Fnv32(std::string_view(reinterpret_cast<const char*>(ids.data()), 4 * ids.size()));
}

}  // namespace tokamak::testing
