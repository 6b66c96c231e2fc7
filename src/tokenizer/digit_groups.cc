#include "tokenizer/digit_groups.h"

#include <vector>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace tokamak {
namespace {

using Kind = PreTokenizerStep::Kind;

bool Counts(Kind kind, uint32_t code_point) {
  if (code_point < 0x80) return code_point >= '0' && code_point <= '9';
  return kind == Kind::kNumberGroups ? ClassOf(code_point) == CharClass::kNumber
                                     : IsDecimalDigit(code_point);
}

}  // namespace

void SplitDigitGroups(Kind kind, std::string_view text, FunctionRef<void(size_t, size_t)> emit) {
  size_t begin = 0;  // start of the current part
  const auto cut = [&](size_t at) {
    if (at != begin) emit(begin, at);
    begin = at;
  };
  const bool isolate = kind != Kind::kDigitGroups;
  std::vector<size_t> digits;  // offsets of the digits in a run
  for (size_t offset = 0; offset < text.size();) {
    digits.clear();
    size_t end = offset;
    bool word_follows = false;
    while (end < text.size()) {
      size_t next = end;
      const uint32_t code_point = NextCodePoint(text, next);
      if (!Counts(kind, code_point)) {
        word_follows = IsWordCharacter(code_point);
        if (digits.empty()) end = next;
        break;
      }
      digits.push_back(end);
      end = next;
    }
    offset = end;
    if (digits.empty()) continue;
    if (kind == Kind::kWordEndDigitGroups && word_follows) continue;
    const size_t first = digits.size() % 3;
    if (isolate && first != 0) cut(digits[0]);
    for (size_t i = first; i < digits.size(); i += 3) cut(digits[i]);
    if (isolate) cut(end);
  }
  cut(text.size());
}

}  // namespace tokamak
