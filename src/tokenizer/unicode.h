// Character properties and normalization (utf8proc; Unicode 15).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

enum class CharClass : uint8_t { kOther, kLetter, kMark, kNumber, kPunctuation, kSymbol, kControl };

bool IsWhiteSpace(uint32_t code_point);      // White_Space
CharClass ClassOf(uint32_t code_point);      // by the first letter of the general category
bool IsDecimalDigit(uint32_t code_point);    // Nd
bool IsWordCharacter(uint32_t code_point);   // what \w matches: L, M, Nd, Pc
bool IsNonspacingMark(uint32_t code_point);  // Mn

// `text`, valid UTF-8, without white space at its start or end.
std::string_view TrimLeft(std::string_view text);
std::string_view TrimRight(std::string_view text);

// Normalization form C of valid UTF-8. O(n log n).
std::string NormalizeNfc(std::string_view text);
// Normalization form D: the decomposition in canonical order.
std::u32string NormalizeNfd(std::string_view text);
// Forms KC and KD, which also replace compatibility characters.
std::string NormalizeNfkc(std::string_view text);
std::u32string NormalizeNfkd(std::string_view text);
// Size of the first extended grapheme cluster of `text`, valid UTF-8, not empty.
size_t GraphemeLength(std::string_view text);
// Appends the full lower case ("İ" gives two characters).
void AppendLowerCase(uint32_t code_point, std::string& out);

}  // namespace tokamak
