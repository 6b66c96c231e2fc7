#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace tokamak {
namespace {

utf8proc_category_t Category(uint32_t code_point) {
  return static_cast<utf8proc_category_t>(
      utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->category);
}

int CombiningClass(char32_t code_point) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->combining_class;
}

// Canonical ordering: sorts runs of combining characters by their class. utf8proc's own ordering is
// quadratic in the length of a run, which the text controls.
void SortCombiningMarks(std::u32string& text) {
  const auto by_class = [](char32_t a, char32_t b) {
    return CombiningClass(a) < CombiningClass(b);
  };
  for (auto it = text.begin(); it != text.end();) {
    if (CombiningClass(*it) == 0) {
      ++it;
      continue;
    }
    const auto end =
        std::find_if(it, text.end(), [](char32_t c) { return CombiningClass(c) == 0; });
    std::stable_sort(it, end, by_class);
    it = end;
  }
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

}  // namespace

bool IsWhiteSpace(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view TrimLeft(std::string_view text) {
  while (!text.empty()) {
    size_t offset = 0;
    if (!IsWhiteSpace(NextCodePoint(text, offset))) break;
    text.remove_prefix(offset);
  }
  return text;
}

std::string_view TrimRight(std::string_view text) {
  while (!text.empty()) {
    const size_t begin = PreviousCodePoint(text, text.size());
    size_t offset = begin;
    if (!IsWhiteSpace(NextCodePoint(text, offset))) break;
    text = text.substr(0, begin);
  }
  return text;
}

CharClass ClassOf(uint32_t code_point) {
  switch (Category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return CharClass::kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return CharClass::kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return CharClass::kSymbol;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
      return CharClass::kControl;
    default:
      return CharClass::kOther;  // separators, unassigned
  }
}

bool IsDecimalDigit(uint32_t code_point) {
  if (code_point < 0x80) return code_point >= '0' && code_point <= '9';
  return Category(code_point) == UTF8PROC_CATEGORY_ND;
}

bool IsWordCharacter(uint32_t code_point) {
  const CharClass c = ClassOf(code_point);
  return c == CharClass::kLetter || c == CharClass::kMark || IsDecimalDigit(code_point) ||
         Category(code_point) == UTF8PROC_CATEGORY_PC;
}

bool IsNonspacingMark(uint32_t code_point) { return Category(code_point) == UTF8PROC_CATEGORY_MN; }

namespace {

std::u32string Decompose(std::string_view text, int options) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const uint32_t code_point = NextCodePoint(text, offset);
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts, 32,
                                static_cast<utf8proc_option_t>(options), &boundary);
    if (count <= 0 || count > 32) {
      out.push_back(code_point);
      continue;
    }
    out.append(parts, parts + count);
  }
  SortCombiningMarks(out);
  return out;
}

std::string Compose(std::u32string decomposed) {
  // Overwrites the code points in place: composing never makes them more.
  static_assert(sizeof(char32_t) == sizeof(utf8proc_int32_t));
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(reinterpret_cast<utf8proc_int32_t*>(decomposed.data()),
                               static_cast<utf8proc_ssize_t>(decomposed.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  std::string out;
  out.reserve(decomposed.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendCodePoint(decomposed[i], out);
  return out;
}

}  // namespace

std::u32string NormalizeNfd(std::string_view text) { return Decompose(text, UTF8PROC_DECOMPOSE); }

std::u32string NormalizeNfkd(std::string_view text) {
  return Decompose(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

std::string NormalizeNfc(std::string_view text) {
  return IsAscii(text) ? std::string(text) : Compose(NormalizeNfd(text));
}

std::string NormalizeNfkc(std::string_view text) {
  return IsAscii(text) ? std::string(text) : Compose(NormalizeNfkd(text));
}

size_t GraphemeLength(std::string_view text) {
  size_t offset = 0;
  auto previous = static_cast<utf8proc_int32_t>(NextCodePoint(text, offset));
  utf8proc_int32_t state = 0;
  while (offset < text.size()) {
    size_t next = offset;
    const auto code_point = static_cast<utf8proc_int32_t>(NextCodePoint(text, next));
    if (utf8proc_grapheme_break_stateful(previous, code_point, &state)) break;
    previous = code_point;
    offset = next;
  }
  return offset;
}

void AppendLowerCase(uint32_t code_point, std::string& out) {
  if (code_point == 0x130) {  // the only character whose full lower case is two characters
    out.append("i\xCC\x87");
    return;
  }
  AppendCodePoint(
      static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))), out);
}

}  // namespace tokamak
