// GPT-2's byte alphabet: each of the 256 bytes as one visible character, so that any bytes can be
// written as text. Printable Latin-1 stands for itself; the rest is from U+0100 on.
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// Decodes `spelling` into `bytes`. Returns false if a character is not in the alphabet; `bytes` is
// then unspecified.
bool DecodeByteAlphabet(std::string_view spelling, std::string& bytes);
// Returns `bytes` in the alphabet.
std::string EncodeByteAlphabet(std::string_view bytes);

}  // namespace tokamak
