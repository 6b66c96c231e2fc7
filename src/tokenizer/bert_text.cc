#include "tokenizer/bert_text.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

// Ideographs become words of their own. The ranges are those of BERT's tokenizer in Rust, including
// its gap in extension E: models are trained with it.
bool IsIdeograph(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// BERT's tokenizer in Rust uses Unicode 8 and takes characters that came later as parts of words.
// These ranges hold all marks, punctuation and control characters that Unicode 9 to 15 added, and
// no others of these kinds.
constexpr struct {
  uint32_t first, last;
} kLater[] = {{0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x8E2},     {0x9FD, 0x9FE},
              {0xA76, 0xA76},     {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC3C},
              {0xC77, 0xC77},     {0xC84, 0xC84},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
              {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x180F, 0x1886},
              {0x1ABF, 0x1ACE},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},   {0x2E43, 0x2E5D},
              {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
              {0x10D24, 0x10F89}, {0x11070, 0x11074}, {0x110C2, 0x110CD}, {0x111C9, 0x111C9},
              {0x111CF, 0x111CF}, {0x1123E, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1145E},
              {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1182F, 0x11FFF}, {0x12FF1, 0x13455},
              {0x16E97, 0x16F4F}, {0x16FE2, 0x16FE4}, {0x1CF00, 0x1CF46}, {0x1E000, 0x1E4EF},
              {0x1E944, 0x1E95F}};

bool IsLater(uint32_t c) {
  const auto* range = std::upper_bound(std::begin(kLater), std::end(kLater), c,
                                       [](uint32_t at, const auto& r) { return at < r.first; });
  return range != std::begin(kLater) && c <= (range - 1)->last;
}

// U+1734 was a nonspacing mark in Unicode 8.
bool IsBertMark(uint32_t c) { return c == 0x1734 || (IsNonspacingMark(c) && !IsLater(c)); }

}  // namespace

bool IsBertPunctuation(uint32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  // These two were punctuation in Unicode 8.
  return c == 0x166D || c == 0x111C9 || (ClassOf(c) == CharClass::kPunctuation && !IsLater(c));
}

std::string NormalizeBert(std::string_view text, BertTextOptions options) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    uint32_t c = NextCodePoint(text, offset);
    if (options.clean) {
      if (c == '\t' || c == '\n' || c == '\r') {
        c = ' ';
      } else if (c == 0 || c == 0xFFFD || (ClassOf(c) == CharClass::kControl && !IsLater(c))) {
        continue;
      } else if (IsWhiteSpace(c)) {
        c = ' ';
      }
    }
    const bool alone = options.isolate_ideographs && IsIdeograph(c);
    if (alone) clean.push_back(' ');
    AppendCodePoint(c, clean);
    if (alone) clean.push_back(' ');
  }
  if (!options.strip_accents && !options.lowercase) return clean;
  std::string out;
  out.reserve(clean.size());
  const auto put = [&](uint32_t c) {
    if (options.strip_accents && IsBertMark(c)) return;
    if (options.lowercase) {
      AppendLowerCase(c, out);
    } else {
      AppendCodePoint(c, out);
    }
  };
  if (options.strip_accents) {
    for (const char32_t c : NormalizeNfd(clean)) put(c);
  } else {
    for (size_t offset = 0; offset < clean.size();) put(NextCodePoint(clean, offset));
  }
  return out;
}

}  // namespace tokamak
