// UTF-8: checking, repairing and decoding. Invalid input is replaced as Unicode recommends
// ("substitution of maximal subparts", The Unicode Standard, section 3.9) and as Python's
// bytes.decode("utf-8", errors="replace") does: one U+FFFD for each longest prefix of a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// The number of leading bytes that are whole, valid characters.
size_t ValidUtf8Prefix(std::string_view text);

// `text` with everything invalid replaced. Appends to `out`.
void AppendValidUtf8(std::string_view text, std::string& out);
std::string ToValidUtf8(std::string_view text);

// The code point at `text[offset]` of valid UTF-8; moves `offset` past it.
uint32_t NextCodePoint(std::string_view text, size_t& offset);
// Bytes in the character that starts with `lead`, a lead byte of valid UTF-8.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
void AppendCodePoint(uint32_t code_point, std::string& out);

// Repairs a stream that arrives in pieces: the outputs joined equal ToValidUtf8 of the whole.
class Utf8StreamDecoder {
 public:
  // Appends to `out` what became certain; holds back a character that may still be completed.
  void Append(std::string_view bytes, std::string& out);
  // Appends U+FFFD for a character left unfinished.
  void Flush(std::string& out);
  bool pending() const { return !pending_.empty(); }

 private:
  std::string pending_;  // at most 3 bytes: the start of a valid character
};

}  // namespace tokamak
