#include "chat/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace tokamak::jinja {
namespace {

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Letters whose capital form is several letters, as far as they are in use.
constexpr std::pair<char32_t, std::string_view> kLongUpper[] = {
    {0xDF, "SS"},    {0x149, "\u02BCN"}, {0x1F0, "J\u030C"}, {0x587, "\u0535\u0552"},
    {0xFB00, "FF"},  {0xFB01, "FI"},     {0xFB02, "FL"},     {0xFB03, "FFI"},
    {0xFB04, "FFL"}, {0xFB05, "ST"},     {0xFB06, "ST"}};

std::string_view LongUpper(char32_t c) {
  for (const auto& [letter, capitals] : kLongUpper) {
    if (letter == c) return capitals;
  }
  return "";
}

void AppendUpper(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : static_cast<char>(c);
    return;
  }
  const std::string_view longer = LongUpper(c);
  if (!longer.empty()) {
    out += longer;
    return;
  }
  AppendCodePoint(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
}

void AppendTitle(char32_t c, std::string& out) {
  const std::string_view longer = LongUpper(c);
  if (!longer.empty()) {
    // Only its first letter stays a capital.
    size_t at = 0;
    NextCodePoint(longer, at);
    out += longer.substr(0, at);
    out += ToLower(longer.substr(at));
    return;
  }
  AppendCodePoint(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
}

bool IsCased(char32_t c) { return IsLower(c) || IsUpper(c); }

// Whether a sigma ends a word: cased letters before it and none after it.
bool IsFinalSigma(std::string_view text, size_t at, size_t end) {
  bool before = false;
  for (size_t i = at; i > 0 && !before;) {
    i = PreviousCodePoint(text, i);
    size_t next = i;
    const char32_t c = NextCodePoint(text, next);
    if (IsCased(c)) {
      before = true;
    } else if (Category(c) != UTF8PROC_CATEGORY_MN && c != '\'' && c != '.') {
      return false;
    }
  }
  for (size_t i = end; i < text.size();) {
    const char32_t c = NextCodePoint(text, i);
    if (IsCased(c)) return false;
    if (Category(c) != UTF8PROC_CATEGORY_MN && c != '\'' && c != '.') break;
  }
  return before;
}

// Appends the lower case of `c`, the character in [at, end) of `text`.
void AppendLower(std::string_view text, size_t at, size_t end, char32_t c, std::string& out) {
  if (c < 0x80) {
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c);
  } else if (c == 0x3A3) {
    out += IsFinalSigma(text, at, end) ? "\u03C2" : "\u03C3";
  } else if (c == 0x130) {
    out += "i\u0307";
  } else {
    AppendCodePoint(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

bool Contains(std::string_view set, char32_t c) {
  for (size_t i = 0; i < set.size();) {
    if (NextCodePoint(set, i) == c) return true;
  }
  return false;
}

template <typename Fn>
std::string_view StripLeftIf(std::string_view text, Fn strip) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!strip(NextCodePoint(text, next))) break;
    at = next;
  }
  return text.substr(at);
}

template <typename Fn>
std::string_view StripRightIf(std::string_view text, Fn strip) {
  size_t end = text.size();
  while (end > 0) {
    const size_t start = PreviousCodePoint(text, end);
    size_t next = start;
    if (!strip(NextCodePoint(text, next))) break;
    end = start;
  }
  return text.substr(0, end);
}

}  // namespace

std::string ToUtf8(char32_t c) {
  std::string out;
  AppendCodePoint(c, out);
  return out;
}

bool IsSpace(char32_t c) {
  return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= ' ';
  const utf8proc_category_t category = Category(c);
  // Separators (Z) and others (C) come last, except for unassigned code points (CN).
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool IsAlphabetic(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) {
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}
bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}
bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }
bool IsUpper(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
}
bool IsNameStart(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return IsAlphabetic(c) || Category(c) == UTF8PROC_CATEGORY_NL;
}
bool IsNamePart(char32_t c) {
  if (c >= '0' && c <= '9') return true;
  if (IsNameStart(c)) return true;
  if (c < 0x80) return false;
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_PC;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) AppendUpper(NextCodePoint(text, i), out);
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = NextCodePoint(text, i);
    AppendLower(text, at, i, c, out);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = NextCodePoint(text, i);
    at == 0 ? AppendTitle(c, out) : AppendLower(text, at, i, c, out);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  bool inside = false;  // inside a word
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = NextCodePoint(text, i);
    inside ? AppendLower(text, at, i, c, out) : AppendTitle(c, out);
    inside = IsCased(c);
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = NextCodePoint(text, i);
    if (IsLower(c)) {
      AppendUpper(c, out);
    } else if (IsUpper(c)) {
      AppendLower(text, at, i, c, out);
    } else {
      AppendCodePoint(c, out);
    }
  }
  return out;
}

std::string_view StripLeft(std::string_view text) { return StripLeftIf(text, IsSpace); }
std::string_view StripRight(std::string_view text) { return StripRightIf(text, IsSpace); }
std::string_view StripLeft(std::string_view text, std::string_view set) {
  return StripLeftIf(text, [set](char32_t c) { return Contains(set, c); });
}
std::string_view StripRight(std::string_view text, std::string_view set) {
  return StripRightIf(text, [set](char32_t c) { return Contains(set, c); });
}

}  // namespace tokamak::jinja
