// Character properties and normalization (utf8proc; Unicode 15).
#pragma once

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

// Normalization form C of valid UTF-8. O(n log n).
std::string NormalizeNfc(std::string_view text);
// Form D; appends the decomposition of the whole text, in canonical order, to `out`.
std::u32string NormalizeNfd(std::string_view text);
// Full lower case ("İ" gives two characters).
void AppendLowerCase(uint32_t code_point, std::string& out);

}  // namespace tokamak
