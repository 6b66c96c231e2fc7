#include "grammar/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>

namespace tokamak::grammar {

namespace {

// Appends the expression for code points of `size` bytes in UTF-8; first and last have that size.
// Splits the range where the bytes after the first would not be all of 80..BF.
void AddUtf8(ExprPool& pool, uint32_t first, uint32_t last, int size, std::vector<Expr>& out) {
  if (first > last) return;
  for (int i = 1; i < size; ++i) {
    const uint32_t mask = (uint32_t{1} << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      AddUtf8(pool, first, first | mask, size, out);
      AddUtf8(pool, (first | mask) + 1, last, size, out);
      return;
    }
    if ((last & mask) != mask) {
      AddUtf8(pool, first, (last & ~mask) - 1, size, out);
      AddUtf8(pool, last & ~mask, last, size, out);
      return;
    }
  }
  static constexpr std::array<uint8_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
  Expr result = kEmpty;
  for (int i = 0; i < size; ++i) {
    const uint32_t low = first >> (6 * i), high = last >> (6 * i);
    const Expr byte = i + 1 == size ? pool.ByteRange(static_cast<uint8_t>(kLead[size] | low),
                                                     static_cast<uint8_t>(kLead[size] | high))
                                    : pool.ByteRange(static_cast<uint8_t>(0x80 | (low & 0x3F)),
                                                     static_cast<uint8_t>(0x80 | (high & 0x3F)));
    result = pool.Concat(byte, result);
  }
  out.push_back(result);
}

Expr HexDigits(ExprPool& pool, uint32_t first, uint32_t last) {
  std::string digits;
  for (uint32_t d = first; d <= last; ++d) digits += {"0123456789abcdef"[d], "0123456789ABCDEF"[d]};
  return pool.OneOf(digits);
}

// `digits` hexadecimal digits from first to last.
Expr Hex(ExprPool& pool, uint32_t first, uint32_t last, int digits) {
  if (digits == 0) return kEmpty;
  const int shift = 4 * (digits - 1);
  const uint32_t mask = (uint32_t{1} << shift) - 1;
  const uint32_t high = first >> shift, top = last >> shift;
  if (high == top) {
    return pool.Concat(HexDigits(pool, high, high),
                       Hex(pool, first & mask, last & mask, digits - 1));
  }
  std::vector<Expr> parts;
  uint32_t from = high, to = top;
  if ((first & mask) != 0) {
    parts.push_back(
        pool.Concat(HexDigits(pool, from, from), Hex(pool, first & mask, mask, digits - 1)));
    ++from;
  }
  if ((last & mask) != mask) {
    parts.push_back(pool.Concat(HexDigits(pool, to, to), Hex(pool, 0, last & mask, digits - 1)));
    --to;
  }
  if (from <= to) {
    parts.push_back(pool.Concat(HexDigits(pool, from, to), Hex(pool, 0, mask, digits - 1)));
  }
  return pool.Or(std::move(parts));
}

// The escape \uXXXX, or a pair of them, for each code point from first to last.
void AddJsonEscapes(ExprPool& pool, uint32_t first, uint32_t last, std::vector<Expr>& out) {
  const Expr start = pool.Literal("\\u");
  if (first < 0x10000) {
    out.push_back(pool.Concat(start, Hex(pool, first, std::min(last, 0xFFFFu), 4)));
  }
  if (last < 0x10000) return;
  const uint32_t from = std::max(first, 0x10000u) - 0x10000, to = last - 0x10000;
  const auto pair = [&](uint32_t high, uint32_t top, uint32_t low, uint32_t bottom) {
    out.push_back(pool.Concat({start, Hex(pool, 0xD800 + high, 0xD800 + top, 4), start,
                               Hex(pool, 0xDC00 + low, 0xDC00 + bottom, 4)}));
  };
  uint32_t high = from >> 10, top = to >> 10;
  if (high == top) return pair(high, top, from & 0x3FF, to & 0x3FF);
  if ((from & 0x3FF) != 0) {
    pair(high, high, from & 0x3FF, 0x3FF);
    ++high;
  }
  if ((to & 0x3FF) != 0x3FF) {
    pair(top, top, 0, to & 0x3FF);
    --top;
  }
  if (high <= top) pair(high, top, 0, 0x3FF);
}

const CodePoints& Surrogates() {
  static const CodePoints* const kSet = new CodePoints{{0xD800, 0xDFFF}};
  return *kSet;
}

CodePoints WithoutSurrogates(const CodePoints& set) {
  return set.Intersection(Surrogates().Complement());
}

}  // namespace

CodePoints::CodePoints(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges)
    : ranges_(ranges) {
  Normalize();
}

void CodePoints::Add(const CodePoints& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

void CodePoints::Normalize() {
  std::sort(ranges_.begin(), ranges_.end());
  size_t count = 0;
  for (const auto& range : ranges_) {
    if (count > 0 && range.first <= uint64_t{ranges_[count - 1].second} + 1) {
      ranges_[count - 1].second = std::max(ranges_[count - 1].second, range.second);
    } else {
      ranges_[count++] = range;
    }
  }
  ranges_.resize(count);
}

CodePoints CodePoints::Complement() const {
  CodePoints result;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) result.Add(next, first - 1);
    next = last + 1;
  }
  if (next <= 0x10FFFF) result.Add(next, 0x10FFFF);
  return result;
}

CodePoints CodePoints::Intersection(const CodePoints& other) const {
  CodePoints result;
  for (size_t i = 0, k = 0; i < ranges_.size() && k < other.ranges_.size();) {
    const uint32_t first = std::max(ranges_[i].first, other.ranges_[k].first);
    const uint32_t last = std::min(ranges_[i].second, other.ranges_[k].second);
    if (first <= last) result.Add(first, last);
    if (ranges_[i].second < other.ranges_[k].second) {
      ++i;
    } else {
      ++k;
    }
  }
  return result;
}

bool CodePoints::Contains(uint32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.first <= code_point && code_point <= range.second;
  });
}

namespace {

// The code points of each of utf8proc's categories.
std::array<CodePoints, 30> MakeCategories() {
  std::array<CodePoints, 30> result;
  uint32_t start = 0;
  int last = utf8proc_category(0);
  for (uint32_t c = 1; c <= 0x110000; ++c) {
    const int category = c < 0x110000 ? utf8proc_category(static_cast<int32_t>(c)) : -1;
    if (category == last) continue;
    result[static_cast<size_t>(last)].Add(start, c - 1);
    start = c;
    last = category;
  }
  return result;
}

}  // namespace

CodePoints UnicodeCategory(std::string_view name) {
  static const auto* const kCategories = new std::array<CodePoints, 30>(MakeCategories());
  static constexpr std::string_view kNames =
      "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
  CodePoints result;
  if (name.empty() || name.size() > 2) return result;
  for (size_t category = 0; category < kCategories->size(); ++category) {
    if (kNames.substr(2 * category, 2).starts_with(name)) result.Add((*kCategories)[category]);
  }
  result.Normalize();
  return result;
}

Expr Utf8Char(ExprPool& pool, const CodePoints& set) {
  std::vector<Expr> parts;
  static constexpr std::array<std::pair<uint32_t, uint32_t>, 4> kSizes = {
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}}};
  const CodePoints valid = WithoutSurrogates(set);
  for (const auto& [first, last] : valid.ranges()) {
    for (int size = 1; size <= 4; ++size) {
      const auto& [low, high] = kSizes[size - 1];
      AddUtf8(pool, std::max(first, low), std::min(last, high), size, parts);
    }
  }
  return pool.Or(std::move(parts));
}

Expr JsonChar(ExprPool& pool, const CodePoints& set) {
  CodePoints special = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  std::vector<Expr> parts = {Utf8Char(pool, set.Intersection(special.Complement()))};
  static constexpr std::string_view kCodes = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  for (size_t i = 0; i < kCodes.size(); ++i) {
    if (set.Contains(kCodes[i])) parts.push_back(pool.Literal(std::string("\\") + kLetters[i]));
  }
  const CodePoints escaped =
      WithoutSurrogates(set.Intersection(CodePoints{{0, 0x1F}, {0x7F, 0x10FFFF}}));
  for (const auto& [first, last] : escaped.ranges()) AddJsonEscapes(pool, first, last, parts);
  return pool.Or(std::move(parts));
}

Expr AnyJsonChar(ExprPool& pool, const CodePoints& set) {
  std::vector<Expr> parts = {JsonChar(pool, set), pool.Literal("\\/")};
  AddJsonEscapes(pool, 0x20, 0x7E, parts);
  return pool.Or(std::move(parts));
}

}  // namespace tokamak::grammar
