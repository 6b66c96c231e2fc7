// GPT-2's spelling of bytes: each of the 256 bytes as one visible character, so that tokens of any
// bytes can be written as text. Printable Latin-1 stands for itself; the rest follows from U+0100.
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// The bytes that `spelling` stands for. Returns false, leaving `bytes` unspecified, if a character
// is not of the alphabet.
bool DecodeByteAlphabet(std::string_view spelling, std::string& bytes);
// The spelling of `bytes`.
std::string EncodeByteAlphabet(std::string_view bytes);

}  // namespace tokamak
