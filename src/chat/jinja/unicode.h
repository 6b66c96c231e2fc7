// Strings are sequences of code points to templates, and UTF-8 here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak::jinja {

// Without overlong forms and surrogates.
bool IsValidUtf8(std::string_view text);
// The code point at `*at`, which moves behind it. The text is valid UTF-8.
char32_t DecodeAt(std::string_view text, size_t* at);
void AppendUtf8(char32_t c, std::string& out);
std::string ToUtf8(char32_t c);
int64_t CountCodePoints(std::string_view text);
// Bytes of the first `count` code points; the size of a text that has fewer.
size_t OffsetOf(std::string_view text, int64_t count);
// The start of the character that ends before byte `at`.
size_t PreviousAt(std::string_view text, size_t at);

// As Python's str methods decide.
bool IsSpace(char32_t c);
bool IsPrintable(char32_t c);
bool IsAlphabetic(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsLower(char32_t c);
bool IsUpper(char32_t c);  // or title case
// A name may start, or go on, with it.
bool IsNameStart(char32_t c);
bool IsNamePart(char32_t c);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
// The first letter as in a title, the rest in lower case.
std::string Capitalize(std::string_view text);
// As Capitalize, for each run of letters.
std::string ToTitle(std::string_view text);
std::string SwapCase(std::string_view text);

std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
// Characters of `set` instead of spaces.
std::string_view StripLeft(std::string_view text, std::string_view set);
std::string_view StripRight(std::string_view text, std::string_view set);

}  // namespace tokamak::jinja
