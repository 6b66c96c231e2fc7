// Templates see strings as sequences of code points; here they are UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "base/utf8.h"

namespace tokamak::jinja {

std::string ToUtf8(char32_t c);

// These agree with Python's str methods.
bool IsSpace(char32_t c);
bool IsPrintable(char32_t c);
bool IsAlphabetic(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsLower(char32_t c);
bool IsUpper(char32_t c);  // or title case
// Whether a name may start, or continue, with it.
bool IsNameStart(char32_t c);
bool IsNamePart(char32_t c);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
// Title case for the first letter, lower case for the rest.
std::string Capitalize(std::string_view text);
// Applies Capitalize to each run of letters.
std::string ToTitle(std::string_view text);
std::string SwapCase(std::string_view text);

std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
// Strip the characters of `set` instead of white space.
std::string_view StripLeft(std::string_view text, std::string_view set);
std::string_view StripRight(std::string_view text, std::string_view set);

}  // namespace tokamak::jinja
