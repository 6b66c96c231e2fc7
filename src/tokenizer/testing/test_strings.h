// Strings that are hard to tokenize, the same on every machine: many scripts, emoji sequences,
// combining marks, white space of all kinds, digits, contractions, special tokens in the text,
// bytes that are not UTF-8. tests/golden/tokenizer_strings.py makes the same ones.
#pragma once

#include <cstdint>
#include <string>

namespace tokamak::testing {

// The string of number `index`: bytes, not always UTF-8.
std::string TestString(uint64_t index);

}  // namespace tokamak::testing
