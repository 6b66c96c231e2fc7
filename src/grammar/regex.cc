#include "grammar/regex.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/scan.h"

namespace tokamak::grammar {

namespace {

constexpr size_t kMaxBytes = 64 << 10;
constexpr int kMaxGroups = 100;  // one within the other

// The texts that a part of a pattern matches, by whether the match must start where the whole text
// does (first index) and end where it does (second index).
struct Anchored {
  std::array<std::array<Expr, 2>, 2> at = {{{kNothing, kNothing}, {kNothing, kNothing}}};

  bool free() const { return at[0][1] == kNothing && at[1][0] == kNothing && at[1][1] == kNothing; }
};

const CodePoints kDigits = {{'0', '9'}};
const CodePoints kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpace = {{'\t', '\r'}, {' ', ' '}};
const CodePoints kEcmaSpace = {
    {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePoints kLineBreaks = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Parser {
 public:
  Parser(ExprPool& pool, std::string_view pattern, const RegexOptions& options,
         FunctionRef<Expr(const CodePoints&)> character)
      : pool_(pool), text_(pattern), options_(options), character_(character) {}

  Result<Expr> Parse() {
    const Anchored all = Alternatives(0);
    if (status_.ok() && at_ < text_.size()) Fail(at_, "\")\" closes no group");
    if (!status_.ok()) return status_;
    std::vector<Expr> terms;
    const Expr anything = options_.ecma ? pool_.Star(Character(CodePoints::All())) : kEmpty;
    for (int start = 0; start < 2; ++start) {
      for (int end = 0; end < 2; ++end) {
        terms.push_back(pool_.Concat(
            {start == 1 ? kEmpty : anything, all.at[start][end], end == 1 ? kEmpty : anything}));
      }
    }
    return pool_.Or(std::move(terms));
  }

 private:
  void Fail(size_t at, std::string_view what) {
    if (status_.ok()) {
      status_ =
          InvalidArgument("regular expression, character {}: {}",
                          CountCodePoints(text_.substr(0, std::min(at, text_.size()))) + 1, what);
    }
    at_ = text_.size();
  }

  bool Eat(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool AtEnd() const { return at_ >= text_.size(); }

  // Large sets cost much more than one character; a pattern often has the same one again.
  Expr Character(const CodePoints& set) {
    if (set.ranges().size() < 2) return character_(set);
    const auto [known, added] = characters_.try_emplace(set.ranges(), kNothing);
    if (added) known->second = character_(set);
    return known->second;
  }
  Anchored Free(Expr expr) {
    Anchored result;
    result.at[0][0] = expr;
    return result;
  }

  Anchored Alternatives(int depth) {
    if (depth > kMaxGroups) {
      Fail(at_, "more than 100 groups within each other are not supported");
      return {};
    }
    std::array<std::array<std::vector<Expr>, 2>, 2> terms;
    do {
      const Anchored branch = Sequence(depth);
      for (int i = 0; i < 4; ++i) terms[i / 2][i % 2].push_back(branch.at[i / 2][i % 2]);
    } while (Eat("|"));
    Anchored result;
    for (int i = 0; i < 4; ++i) result.at[i / 2][i % 2] = pool_.Or(terms[i / 2][i % 2]);
    return result;
  }

  Anchored Sequence(int depth) {
    std::vector<Anchored> parts;
    while (!AtEnd() && text_[at_] != '|' && text_[at_] != ')') parts.push_back(Quantified(depth));
    if (std::all_of(parts.begin(), parts.end(), [](const Anchored& p) { return p.free(); })) {
      Expr result = kEmpty;  // from the right, so that tails are shared
      for (size_t i = parts.size(); i-- > 0;) result = pool_.Concat(parts[i].at[0][0], result);
      return Free(result);
    }
    Anchored result = Free(kEmpty);
    for (const Anchored& part : parts) result = Join(result, part);
    return result;
  }

  // Returns a, then b. If a ends the text or b starts it, the other one must match the empty text.
  Anchored Join(const Anchored& a, const Anchored& b) {
    std::array<std::array<std::vector<Expr>, 2>, 2> terms;
    for (int i = 0; i < 16; ++i) {
      const int a_start = i & 1, a_end = i >> 1 & 1, b_start = i >> 2 & 1, b_end = i >> 3;
      Expr left = a.at[a_start][a_end], right = b.at[b_start][b_end];
      if (left == kNothing || right == kNothing) continue;
      if (a_end == 1) right = pool_.nullable(right) ? kEmpty : kNothing;
      if (b_start == 1) left = pool_.nullable(left) ? kEmpty : kNothing;
      terms[a_start | b_start][a_end | b_end].push_back(pool_.Concat(left, right));
    }
    Anchored result;
    for (int i = 0; i < 4; ++i) result.at[i / 2][i % 2] = pool_.Or(terms[i / 2][i % 2]);
    return result;
  }

  Anchored Quantified(int depth) {
    const size_t start = at_;
    Anchored atom = Atom(depth);
    if (AtEnd()) return atom;
    uint32_t min = 0, max = kNoLimit;
    if (Eat("?")) {
      max = 1;
    } else if (Eat("+")) {
      min = 1;
    } else if (!Eat("*") && !Counts(min, max)) {
      return atom;
    }
    Eat("?");  // lazy: the same language
    const bool again = !AtEnd() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?');
    if (again) Fail(at_, "a quantifier follows a quantifier");
    if (!atom.free()) {
      if (max != 1) Fail(start, "\"^\" and \"$\" cannot be repeated");
      if (min == 0) atom.at[0][0] = pool_.Or({atom.at[0][0], kEmpty});
      return atom;
    }
    return Free(pool_.Repeat(atom.at[0][0], min, max));
  }

  // {n}, {n,} or {n,m}; anything else is text in ECMA 262, but too likely a mistake.
  bool Counts(uint32_t& min, uint32_t& max) {
    const size_t start = at_;
    if (!Eat("{")) return false;
    const auto from = ReadCount(text_, at_);
    auto to = from;
    if (Eat(",")) to = ReadCount(text_, at_);
    if (!from || !Eat("}")) {
      Fail(start, "\"{\" must start a count such as {2,5}; write \\{ for the character");
      return false;
    }
    if (*from > kMaxCount || to.value_or(0) > kMaxCount) {
      Fail(start, "counts of more than 100,000 are not supported");
    } else if (to && *to < *from) {
      Fail(start, "the count's limits are in the wrong order");
    }
    min = *from;
    max = to.value_or(kNoLimit);
    return true;
  }

  Anchored Atom(int depth) {
    const size_t start = at_;
    const char c = text_[at_];
    switch (c) {
      case '(':
        return Group(depth);
      case '[':
        return Free(Character(Class()));
      case '^':
      case '$': {
        ++at_;
        Anchored result;
        result.at[c == '^'][c == '$'] = kEmpty;
        return result;
      }
      case '.':
        ++at_;
        return Free(
            Character((options_.ecma ? kLineBreaks : CodePoints{{'\n', '\n'}}).Complement()));
      case '*':
      case '+':
      case '?':
      case '{':
        Fail(start, "a quantifier has nothing to repeat");
        return {};
      case '\\': {
        CodePoints set;
        if (Escape(set, false)) return Free(Character(set));
        return {};
      }
      default: {
        const uint32_t code_point = NextCodePoint(text_, at_);
        return Free(Character({{code_point, code_point}}));
      }
    }
  }

  Anchored Group(int depth) {
    const size_t start = at_++;
    if (Eat("?")) {
      if (Eat("=") || Eat("!") || Eat("<=") || Eat("<!")) {
        Fail(start, "lookahead and lookbehind are not supported");
      } else if (Eat("P<") || Eat("<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) {
          Fail(start, "the group's name does not end");
        } else {
          at_ = end + 1;
        }
      } else if (!Eat(":")) {
        Fail(start, "flags and other extensions of groups are not supported");
      }
    }
    Anchored result = Alternatives(depth + 1);
    if (!Eat(")")) Fail(start, "the group does not end: \")\" is missing");
    return result;
  }

  CodePoints Class() {
    const size_t start = at_++;
    const bool negated = Eat("^");
    CodePoints set;
    bool first = true;
    while (!AtEnd() && (text_[at_] != ']' || (first && !options_.ecma))) {
      first = false;
      if (!options_.ecma && (text_.substr(at_, 2) == "[:")) {
        Fail(at_, "POSIX classes such as [:alpha:] are not supported");
      }
      CodePoints low;
      if (!ClassAtom(low)) return {};
      const bool range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      if (!range) {
        set.Add(low);
        continue;
      }
      const size_t dash = at_++;
      CodePoints high;
      if (!ClassAtom(high)) return {};
      const auto single = [](const CodePoints& points) {
        return points.ranges().size() == 1 && points.ranges()[0].first == points.ranges()[0].second;
      };
      if (!single(low) || !single(high) || low.ranges()[0].first > high.ranges()[0].first) {
        Fail(dash, "\"-\" stands between what is no range; write \\- for the character");
        return {};
      }
      set.Add(low.ranges()[0].first, high.ranges()[0].first);
    }
    if (!Eat("]")) Fail(start, "the class does not end: \"]\" is missing");
    set.Normalize();
    return negated ? set.Complement() : set;
  }

  bool ClassAtom(CodePoints& set) {
    if (AtEnd()) return false;
    if (text_[at_] == '\\') return Escape(set, true);
    const uint32_t code_point = NextCodePoint(text_, at_);
    set = {{code_point, code_point}};
    return true;
  }

  bool Escape(CodePoints& set, bool in_class);
  bool Letter(char c, bool in_class, CodePoints& set);
  std::optional<uint32_t> CodeUnit();

  ExprPool& pool_;
  const std::string_view text_;
  const RegexOptions options_;
  const FunctionRef<Expr(const CodePoints&)> character_;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, Expr> characters_;
  size_t at_ = 0;
  Status status_;
};

// Reads the rest of an escape after \u: XXXX, a pair of surrogates, or {X...}.
std::optional<uint32_t> Parser::CodeUnit() {
  if (Eat("{")) {
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos || end == at_ || end - at_ > 6) return std::nullopt;
    const auto value = ReadHex(text_, at_, end - at_);
    ++at_;
    return value && *value <= 0x10FFFF ? value : std::nullopt;
  }
  const auto high = ReadHex(text_, at_, 4);
  if (!high || *high < 0xD800 || *high > 0xDBFF || !text_.substr(at_).starts_with("\\u")) {
    return high;
  }
  const size_t start = at_;
  at_ += 2;
  const auto low = ReadHex(text_, at_, 4);
  if (!low || *low < 0xDC00 || *low > 0xDFFF) {
    at_ = start;
    return high;
  }
  return 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
}

// Escapes by letters that stand for a set. Returns false if `c` is not one of them.
bool Parser::Letter(char c, bool in_class, CodePoints& set) {
  switch (c) {
    case 'd':
    case 'D':
      set = kDigits;
      break;
    case 'w':
    case 'W':
      set = kWord;
      break;
    case 's':
    case 'S':
      set = options_.ecma ? kEcmaSpace : kSpace;
      break;
    default: {
      static constexpr std::string_view kLetters = "nrtfvb", kCodes = "\n\r\t\f\v\b";
      const size_t index = kLetters.find(c);
      if (index == std::string_view::npos || (c == 'b' && !in_class)) return false;
      const uint32_t code = static_cast<unsigned char>(kCodes[index]);
      set = {{code, code}};
    }
  }
  const bool negated = c <= 'Z';
  if (negated) set = set.Complement();
  return true;
}

bool Parser::Escape(CodePoints& set, bool in_class) {
  const size_t start = at_++;
  if (AtEnd()) {
    Fail(start, "the pattern ends with \"\\\"");
    return false;
  }
  const char c = text_[at_];
  if (static_cast<uint8_t>(c) >= 0x80) {
    const uint32_t code_point = NextCodePoint(text_, at_);
    set = {{code_point, code_point}};
    return true;
  }
  ++at_;
  if (Letter(c, in_class, set)) return true;
  const auto one = [&](std::optional<uint32_t> code_point, std::string_view what) {
    if (!code_point) {
      Fail(start, what);
      return false;
    }
    set = {{*code_point, *code_point}};
    return true;
  };
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const bool digit = c >= '0' && c <= '9';
  if (!letter && !digit) return one(static_cast<uint8_t>(c), "");
  if (c == 'x') return one(ReadHex(text_, at_, 2), "\"\\x\" needs two hexadecimal digits");
  if (c == 'u') return one(CodeUnit(), "\"\\u\" needs four hexadecimal digits or {...}");
  if (c == 'p' || c == 'P') {
    const size_t end = text_.find('}', at_);
    if (Eat("{") && end != std::string_view::npos) {
      set = UnicodeCategory(text_.substr(at_, end - at_));
      at_ = end + 1;
      if (c == 'P') set = set.Complement();
      if (!set.empty() && set.ranges().front() != std::pair<uint32_t, uint32_t>(0, 0x10FFFF)) {
        return true;
      }
    }
    Fail(start, "only general categories such as \\p{L} and \\p{Lu} are supported");
    return false;
  }
  if (c == '0' && (AtEnd() || text_[at_] < '0' || text_[at_] > '9')) return one(0, "");
  Fail(start, digit                    ? "backreferences are not supported"
              : (c == 'b' || c == 'B') ? "word boundaries are not supported"
                                       : "this escape is not supported");
  return false;
}

}  // namespace

Result<Expr> RegexExpr(ExprPool& pool, std::string_view pattern, const RegexOptions& options,
                       FunctionRef<Expr(const CodePoints&)> character) {
  if (pattern.size() > kMaxBytes) {
    return InvalidArgument("a regular expression of {} bytes is too long; the limit is {}",
                           pattern.size(), kMaxBytes);
  }
  if (!IsValidUtf8(pattern)) return InvalidArgument("the regular expression is not valid UTF-8");
  return Parser(pool, pattern, options, character).Parse();
}

Result<Expr> RegexExpr(ExprPool& pool, std::string_view pattern) {
  return RegexExpr(pool, pattern, {}, [&](const CodePoints& set) { return Utf8Char(pool, set); });
}

}  // namespace tokamak::grammar
