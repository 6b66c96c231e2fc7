// Sets of Unicode code points, and expressions that match one character of a set.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expr.h"

namespace tokamak::grammar {

// Ascending ranges, inclusive, that neither touch nor overlap once Normalize has run. Surrogates
// are no characters: expressions leave them out.
class CodePoints {
 public:
  CodePoints() = default;
  CodePoints(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges);
  static CodePoints All() { return {{0, 0x10FFFF}}; }

  void Add(uint32_t first, uint32_t last) { ranges_.emplace_back(first, last); }
  void Add(const CodePoints& other);
  void Normalize();
  CodePoints Complement() const;  // requires normalized ranges
  CodePoints Intersection(const CodePoints& other) const;
  bool Contains(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

// The code points of a general category, "L" or "Lu"; empty if there is no such category.
CodePoints UnicodeCategory(std::string_view name);

// One character of the set in UTF-8.
Expr Utf8Char(ExprPool& pool, const CodePoints& set);
// One character of the set as it stands in a JSON string. Characters from U+0020 to U+007E stand
// for themselves, apart from \" and \\; all others may also be written as \uXXXX, so that what
// json.dumps writes with and without ensure_ascii matches.
Expr JsonChar(ExprPool& pool, const CodePoints& set);
// Any character of a JSON string, in any way that RFC 8259 allows, except lone surrogates. Those
// that are not in `set` are escaped.
Expr AnyJsonChar(ExprPool& pool, const CodePoints& set);

}  // namespace tokamak::grammar
