#include "grammar/gbnf.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/code_points.h"
#include "grammar/scan.h"

namespace tokamak::grammar {

namespace {

constexpr size_t kMaxBytes = 256 << 10;
constexpr int kMaxGroups = 100;  // one within the other

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class Parser {
 public:
  Parser(ExprPool& pool, std::string_view text) : pool_(pool), text_(text) {}

  Result<Expr> Parse() {
    SkipSpace(true);
    while (status_.ok() && !AtEnd()) {
      ReadRule();
      SkipSpace(true);
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) Fail(rule.at, "the rule \"" + name + "\" is not defined");
    }
    if (!rules_.contains("root")) Fail(0, "there is no rule \"root\"");
    if (!status_.ok()) return status_;
    return rules_["root"].expr;
  }

 private:
  struct Rule {
    Expr expr = kNothing;
    bool defined = false;
    size_t at = 0;  // where it was first named
  };

  // `at`: the byte that the message is about.
  void Fail(size_t at, const std::string& what) {
    if (status_.ok()) {
      const std::string_view before = text_.substr(0, at);
      status_ = InvalidArgument("grammar, line {}: {}",
                                1 + std::count(before.begin(), before.end(), '\n'), what);
    }
    at_ = text_.size();
  }
  void Fail(const std::string& what) { Fail(at_, what); }
  bool AtEnd() const { return at_ >= text_.size(); }
  bool Eat(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  // Also skips comments.
  void SkipSpace(bool lines) {
    while (!AtEnd()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else if (c == ' ' || c == '\t' || (lines && (c == '\r' || c == '\n'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string Name() {
    const size_t start = at_;
    while (!AtEnd() && IsNameChar(text_[at_])) ++at_;
    if (at_ == start) Fail("a name is missing");
    return std::string(text_.substr(start, at_ - start));
  }

  Rule& RuleNamed(const std::string& name) {
    const auto [rule, added] = rules_.try_emplace(name);
    if (added) rule->second = {pool_.NewRule(), false, at_ - 1};
    return rule->second;
  }

  void ReadRule() {
    const std::string name = Name();
    SkipSpace(false);
    if (!status_.ok()) return;
    if (!Eat("::=")) return Fail("\"::=\" is missing after the name \"" + name + "\"");
    SkipSpace(true);
    Rule& rule = RuleNamed(name);
    if (rule.defined) return Fail("the rule \"" + name + "\" is defined twice");
    rule.defined = true;
    const Expr body = Alternatives(0);
    if (!AtEnd() && text_[at_] != '\r' && text_[at_] != '\n') {
      return Fail("a rule ends here, so a line must end, too");
    }
    pool_.SetRule(rule.expr, body);
  }

  Expr Alternatives(int depth) {
    std::vector<Expr> terms;
    do {
      SkipSpace(true);
      terms.push_back(Sequence(depth));
    } while (Eat("|"));
    return pool_.Or(std::move(terms));
  }

  // Within a group a sequence may continue on the next line.
  Expr Sequence(int depth) {
    std::vector<Expr> parts;
    while (!AtEnd()) {
      const char c = text_[at_];
      if (c == '|' || c == ')' || c == '\r' || c == '\n') break;
      Expr item = Item(depth);
      // Each operator applies to all that stands to its left, as in "a"*?.
      for (bool more = true; more && !AtEnd();) {
        SkipSpace(depth > 0);
        more = Quantifier(item);
      }
      parts.push_back(item);
      SkipSpace(depth > 0);
    }
    return pool_.Concat(parts);
  }

  bool Quantifier(Expr& item) {
    if (Eat("*")) {
      item = pool_.Star(item);
    } else if (Eat("+")) {
      item = pool_.Repeat(item, 1, kNoLimit);
    } else if (Eat("?")) {
      item = pool_.Optional(item);
    } else if (Eat("{")) {
      SkipSpace(true);
      const std::optional<uint32_t> min = ReadCount(text_, at_);
      std::optional<uint32_t> max = min;
      SkipSpace(true);
      if (Eat(",")) {
        SkipSpace(true);
        max = ReadCount(text_, at_);
        SkipSpace(true);
      }
      if (!min || !Eat("}")) {
        Fail("\"{\" must start a count such as {2}, {2,} or {2,5}");
      } else if (*min > kMaxCount || max.value_or(0) > kMaxCount) {
        Fail("counts of more than 100,000 are not supported");
      } else if (max && *max < *min) {
        Fail("the count's limits are in the wrong order");
      }
      item = pool_.Repeat(item, min.value_or(0), max.value_or(kNoLimit));
    } else {
      return false;
    }
    return true;
  }

  Expr Item(int depth) {
    const char c = text_[at_];
    if (c == '"') return Literal();
    if (c == '[') return Utf8Char(pool_, Class());
    if (Eat(".")) return Utf8Char(pool_, CodePoints::All());
    if (IsNameChar(c)) {
      const std::string name = Name();
      return RuleNamed(name).expr;
    }
    if (c == '(') {
      if (depth >= kMaxGroups) {
        Fail("more than 100 groups within each other are not supported");
        return kNothing;
      }
      const size_t start = at_;
      ++at_;
      const Expr result = Alternatives(depth + 1);
      SkipSpace(true);
      if (!Eat(")")) Fail(start, "the group does not end: \")\" is missing");
      return result;
    }
    Fail(c == '<' ? "tokens in angle brackets are not supported; write their text as a literal"
                  : "a literal, class, group or name is expected here");
    return kNothing;
  }

  Expr Literal() {
    const size_t start = at_;
    ++at_;
    std::vector<Expr> chars;
    while (!AtEnd() && text_[at_] != '"') {
      const std::optional<uint32_t> c = Char();
      if (!c) return kNothing;
      chars.push_back(Utf8Char(pool_, {{*c, *c}}));
    }
    if (!Eat("\"")) Fail(start, "the literal does not end: '\"' is missing");
    return pool_.Concat(chars);
  }

  CodePoints Class() {
    const size_t start = at_;
    ++at_;
    const bool negated = Eat("^");
    CodePoints set;
    while (!AtEnd() && text_[at_] != ']') {
      const std::optional<uint32_t> low = Char();
      std::optional<uint32_t> high = low;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        high = Char();
      }
      if (!low || !high) return {};
      if (*high < *low) {
        Fail("the limits of a range are in the wrong order");
        return {};
      }
      set.Add(*low, *high);
    }
    if (!Eat("]")) Fail(start, "the class does not end: \"]\" is missing");
    set.Normalize();
    return negated ? set.Complement() : set;
  }

  std::optional<uint32_t> Char() {
    if (AtEnd()) return std::nullopt;
    if (text_[at_] != '\\') return NextCodePoint(text_, at_);
    if (++at_ >= text_.size()) {
      Fail("the grammar ends with \"\\\"");
      return std::nullopt;
    }
    const char c = text_[at_++];
    switch (c) {
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<uint32_t>(c);
      default:
        Fail("this escape is not supported");
        return std::nullopt;
    }
  }

  std::optional<uint32_t> Hex(size_t digits) {
    const std::optional<uint32_t> value = ReadHex(text_, at_, digits);
    if (value && *value <= 0x10FFFF) return value;
    Fail(value ? "an escape is beyond U+10FFFF"
               : "an escape needs " + std::to_string(digits) + " hexadecimal digits");
    return std::nullopt;
  }

  ExprPool& pool_;
  const std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, Rule> rules_;
  Status status_;
};

}  // namespace

Result<Expr> GbnfExpr(ExprPool& pool, std::string_view text) {
  if (text.size() > kMaxBytes) {
    return InvalidArgument("a grammar of {} bytes is too long; the limit is {}", text.size(),
                           kMaxBytes);
  }
  if (!IsValidUtf8(text)) return InvalidArgument("the grammar is not valid UTF-8");
  return Parser(pool, text).Parse();
}

}  // namespace tokamak::grammar
