// Validates, repairs and decodes UTF-8. Invalid input is replaced as Unicode recommends
// ("substitution of maximal subparts", The Unicode Standard, section 3.9) and as in Python's
// bytes.decode("utf-8", errors="replace"): one U+FFFD for each longest prefix of a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// Length of the longest prefix made of whole, valid characters.
size_t ValidUtf8Prefix(std::string_view text);

// Replaces everything invalid in `text`. AppendValidUtf8 appends to `out`.
void AppendValidUtf8(std::string_view text, std::string& out);
std::string ToValidUtf8(std::string_view text);

// Rejects overlong forms and surrogates.
inline bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

// Returns the code point at `text[offset]`, valid UTF-8, and moves `offset` past it.
uint32_t NextCodePoint(std::string_view text, size_t& offset);
// Returns the start of the character that ends before byte `offset`, which is not 0.
size_t PreviousCodePoint(std::string_view text, size_t offset);
int64_t CountCodePoints(std::string_view text);
// Returns the size in bytes of the first `count` code points; the whole size if there are fewer.
size_t OffsetOf(std::string_view text, int64_t count);
// Size of the character that starts with `lead`, a lead byte of valid UTF-8.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
void AppendCodePoint(uint32_t code_point, std::string& out);

// Repairs a stream that arrives in pieces. The outputs joined equal ToValidUtf8 of the whole.
class Utf8StreamDecoder {
 public:
  // Appends completed text to `out` and holds back a character that may still be completed.
  void Append(std::string_view bytes, std::string& out);
  // Appends U+FFFD for an unfinished character.
  void Flush(std::string& out);
  bool pending() const { return !pending_.empty(); }

 private:
  std::string pending_;  // at most 3 bytes: the start of a valid character
};

}  // namespace tokamak
