// Character properties and normalization (utf8proc; Unicode 15).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

enum class CharClass : uint8_t { kOther, kLetter, kMark, kNumber, kPunctuation, kSymbol, kControl };

bool IsWhiteSpace(uint32_t code_point);      // the property White_Space
CharClass ClassOf(uint32_t code_point);      // the first letter of the general category
bool IsDecimalDigit(uint32_t code_point);    // Nd
bool IsWordCharacter(uint32_t code_point);   // L, M, Nd, Pc: what \w matches
bool IsNonspacingMark(uint32_t code_point);  // Mn

// `text`, valid UTF-8, without the white space at its start, and at its end.
std::string_view TrimLeft(std::string_view text);
std::string_view TrimRight(std::string_view text);

// Normalization form C of valid UTF-8. O(n log n).
std::string NormalizeNfc(std::string_view text);
// Form D; appends the decomposition of the whole text, in canonical order, to `out`.
std::u32string NormalizeNfd(std::string_view text);
// Forms KC and KD, which also replace compatibility characters.
std::string NormalizeNfkc(std::string_view text);
std::u32string NormalizeNfkd(std::string_view text);
// Bytes of the first extended grapheme cluster of valid UTF-8 that is not empty.
size_t GraphemeLength(std::string_view text);
// Full lower case ("İ" gives two characters).
void AppendLowerCase(uint32_t code_point, std::string& out);

}  // namespace tokamak
