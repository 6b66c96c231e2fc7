#include "grammar/json_compiler.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/json_format.h"
#include "grammar/json_number.h"
#include "grammar/regex.h"

namespace tokamak::grammar {

namespace {

constexpr int kMaxNesting = 200;
// Levels of a value that the schema does not describe. JsonLimits allows 100, and those around it
// count as well.
constexpr size_t kMaxAnyLevels = 64;
constexpr uint32_t kMaxHostname = 253;  // RFC 1035, section 2.3.4, without the root's dot
constexpr uint16_t kMaxInlineDepth = 100;
constexpr int kDisjointDepth = 3;  // how deep a difference between alternatives may be
constexpr size_t kMaxAlternatives = 1000;
constexpr uint64_t kMatchWork = 200'000;  // of a pool, for one name or one pair of alternatives
// Work, in units of about 10 ns.
constexpr uint64_t kPoolWork = 20;     // for one unit of a pool's
constexpr uint64_t kStringWork = 500;  // to begin with two schemas of strings
constexpr uint64_t kValueWork = 50;    // for a value of an enum

}  // namespace

const JsonValue* TrueSchema() {
  static const JsonValue* const kTrue = new JsonValue(true);
  return kTrue;
}

JsonCompiler::JsonCompiler(ExprPool& pool, const SchemaDocument& document, const JsonSpace& space,
                           uint64_t work, Chars chars)
    : pool_(pool),
      document_(document),
      space_(space),
      chars_(chars),
      quote_(pool.Byte('"')),
      comma_(pool.Concat({space.before_mark, pool.Byte(','), space.after_comma})),
      string_char_(AnyJsonChar(
          pool, chars == Chars::kJson ? CodePoints::All() : CodePoints{{'<', '<'}}.Complement())),
      work_(work) {}

Result<Expr> JsonCompiler::Value(Schemas schemas) {
  for (const JsonValue*& schema : schemas) {
    if (IsTrue(*schema)) schema = TrueSchema();
  }
  if (schemas.empty()) schemas.push_back(TrueSchema());
  std::sort(schemas.begin(), schemas.end());
  schemas.erase(std::unique(schemas.begin(), schemas.end()), schemas.end());
  if (schemas.size() > 1) std::erase(schemas, TrueSchema());
  if (schemas[0] == TrueSchema()) return AnyValue();
  const auto known = values_.find(schemas);
  if (known != values_.end()) {
    known->second.recursive |= known->second.open;
    return known->second.expr;
  }
  if (depth_ >= kMaxNesting) return document_.Refuse(schemas[0], "", "is nested too deeply");
  const Expr rule = pool_.NewRule();
  Known& entry = values_[schemas];  // stays where it is while others are added
  entry = {rule, true, false};
  ++depth_;
  Result<Expr> body = Build(schemas);
  --depth_;
  if (!body.ok()) return body;
  pool_.SetRule(rule, *body);
  entry.open = false;
  if (!entry.recursive && pool_[*body].depth < kMaxInlineDepth) entry.expr = *body;
  return entry.expr;
}

Result<Expr> JsonCompiler::AnyValue() {
  if (any_is_open_) return any_.back();  // the elements of the next level
  any_is_open_ = true;
  while (any_.size() <= kMaxAnyLevels) {
    Merged all;
    if (any_.empty()) all.types &= static_cast<uint8_t>(~(kArray | kObject));
    ASSIGN_OR_RETURN(const Expr value, Typed({TrueSchema()}, all));
    any_.push_back(pool_.NewRule());
    pool_.SetRule(any_.back(), value);
  }
  any_is_open_ = false;
  return any_.back();
}

Result<Merged> JsonCompiler::Merge(const Schemas& schemas) {
  Result<Merged> merged = document_.Merge(schemas, work_left());
  if (merged.ok()) RETURN_IF_ERROR(Spend(schemas[0], merged->work));
  return merged;
}

Status JsonCompiler::Spend(const JsonValue* place, uint64_t work) {
  work_ += work;
  return work_ > kMaxWork ? document_.Refuse(place, "", kTooMuchWork) : Status();
}

Result<Expr> JsonCompiler::Build(const Schemas& schemas) {
  if (out_of_work()) return kNothing;
  ASSIGN_OR_RETURN(const Merged merged, Merge(schemas));
  if (merged.types == 0) return kNothing;
  return merged.choices.empty() ? Typed(schemas, merged) : Choice(schemas, merged, {});
}

// "oneOf" is "anyOf" if no value fits two alternatives.
Status JsonCompiler::CheckExclusive(const Schemas& schemas, const JsonValue* list) {
  const JsonValue::Array& alternatives = *list->AsArray();
  for (size_t i = 0; i < alternatives.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      Schemas a = schemas, b = schemas;
      a.push_back(&alternatives[i]);
      b.push_back(&alternatives[k]);
      ASSIGN_OR_RETURN(const bool disjoint, Disjoint(a, b, kDisjointDepth));
      if (disjoint) continue;
      return InvalidArgument(
          "{}: alternatives {} and {} may fit the same value, which is not supported. Use anyOf, "
          "or tell them apart by type or by a required member with const",
          document_.PathOf(list), k, i);
    }
  }
  return {};
}

// Takes all lists of alternatives apart: a value fits one alternative of each list, and the rest.
// `done` are the lists of which `schemas` has an alternative already.
Result<Expr> JsonCompiler::Choice(const Schemas& schemas, const Merged& merged,
                                  std::vector<const JsonValue*> done) {
  if (done.size() > static_cast<size_t>(kMaxNesting))
    return document_.Refuse(schemas[0], "", "is nested too deeply");
  for (const auto& [list, exactly_one] : merged.choices) done.push_back(list);
  std::vector<Schemas> combined = {schemas};
  for (const auto& [list, exactly_one] : merged.choices) {
    if (exactly_one) RETURN_IF_ERROR(CheckExclusive(schemas, list));
    std::vector<Schemas> next;
    for (const JsonValue& alternative : *list->AsArray()) {
      ASSIGN_OR_RETURN(const Merged alone, Merge({&alternative}));
      for (const auto& [inner, unused] : alone.choices) {
        if (std::find(done.begin(), done.end(), inner) == done.end()) continue;
        return document_.Refuse(&alternative, "", "refers to the list that it is part of");
      }
      for (const Schemas& chosen : combined) {
        next.push_back(chosen);
        next.back().push_back(&alternative);
      }
      if (next.size() > kMaxAlternatives) {
        return InvalidArgument("{}: more than {} combinations of alternatives are not supported",
                               document_.PathOf(list), kMaxAlternatives);
      }
    }
    combined = std::move(next);
  }
  std::vector<Expr> terms;
  for (const Schemas& all : combined) {
    ASSIGN_OR_RETURN(Merged part, Merge(all));
    std::erase_if(part.choices, [&](const auto& choice) {
      return std::find(done.begin(), done.end(), choice.first) != done.end();
    });
    if (part.types == 0) continue;
    ASSIGN_OR_RETURN(const Expr term,
                     part.choices.empty() ? Typed(all, part) : Choice(all, part, done));
    terms.push_back(term);
  }
  return pool_.Or(std::move(terms));
}

Result<Expr> JsonCompiler::Typed(const Schemas& schemas, const Merged& merged) {
  if (merged.values) return Values(schemas, merged);
  std::vector<Expr> terms;
  if ((merged.types & kNull) != 0) terms.push_back(pool_.Literal("null"));
  if ((merged.types & kBoolean) != 0) {
    terms.push_back(pool_.Or({pool_.Literal("true"), pool_.Literal("false")}));
  }
  if ((merged.types & (kInteger | kFraction)) != 0) {
    const std::optional<Expr> number =
        NumberExpr(pool_, merged.numbers, (merged.types & kFraction) == 0);
    if (!number) {
      return document_.Refuse(schemas[0], "multipleOf",
                              "this value, or with limits, is not supported; powers of ten are");
    }
    terms.push_back(*number);
  }
  if ((merged.types & kString) != 0) {
    ASSIGN_OR_RETURN(const Expr string, String(merged));
    terms.push_back(string);
  }
  if ((merged.types & kArray) != 0) {
    ASSIGN_OR_RETURN(const Expr array, Array(schemas, merged));
    terms.push_back(array);
  }
  if ((merged.types & kObject) != 0) {
    ASSIGN_OR_RETURN(const Expr object, Object(schemas, merged));
    terms.push_back(object);
  }
  return pool_.Or(std::move(terms));
}

Result<Expr> JsonCompiler::Values(const Schemas& schemas, const Merged& merged) {
  std::vector<Expr> strings, terms;
  RETURN_IF_ERROR(Spend(schemas[0], merged.values->size() * kValueWork));
  for (const JsonValue* value : *merged.values) {
    if (out_of_work()) return kNothing;
    const uint8_t type = TypeOf(*value);
    if ((merged.types & type) == 0) continue;
    if (type == kString) {
      strings.push_back(TextLiteral(*value->AsString()));
      continue;
    }
    if ((type & (kInteger | kFraction)) != 0 && !merged.numbers.none() &&
        !Within(*value, merged.numbers)) {
      continue;
    }
    if ((type & (kArray | kObject)) != 0 && merged.limits_containers()) {
      return document_.Refuse(schemas[0], "",
                              "arrays and objects in enum or const together with other keywords "
                              "for them are not supported");
    }
    terms.push_back(Literal(*value));
  }
  if (!strings.empty()) {
    Expr content = pool_.Or(std::move(strings));
    if (merged.limits_strings()) {
      ASSIGN_OR_RETURN(const Expr limits, StringContent(merged));
      content = pool_.And({content, limits});
    }
    terms.push_back(pool_.Concat({quote_, content, quote_}));
  }
  return pool_.Or(std::move(terms));
}

Expr JsonCompiler::Char(const CodePoints& set) {
  if (chars_ == Chars::kText) return Utf8Char(pool_, set);
  if (chars_ == Chars::kJson || !set.Contains('<')) return JsonChar(pool_, set);
  return pool_.Or({JsonChar(pool_, set.Intersection(CodePoints{{'<', '<'}}.Complement())),
                   pool_.Literal("\\u003c"), pool_.Literal("\\u003C")});
}

Expr JsonCompiler::TextLiteral(std::string_view text) {
  if (chars_ == Chars::kText) return pool_.Literal(text);
  std::vector<Expr> chars;
  for (size_t at = 0; at < text.size();) {
    const uint32_t code_point = NextCodePoint(text, at);
    const bool plain = code_point >= 0x20 && code_point < 0x7F && code_point != '"' &&
                       code_point != '\\' && code_point != '<';
    chars.push_back(plain ? pool_.Byte(static_cast<uint8_t>(code_point))
                          : Char({{code_point, code_point}}));
  }
  return pool_.Concat(chars);
}

Expr JsonCompiler::Texts(const std::vector<const JsonValue*>& values) {
  std::vector<Expr> texts;
  for (const JsonValue* value : values) {
    if (value->is_string()) texts.push_back(TextLiteral(*value->AsString()));
  }
  return pool_.Or(std::move(texts));
}

Expr JsonCompiler::MemberText(Expr name, Expr value) {
  return pool_.Concat(
      {quote_, name, quote_, space_.before_mark, pool_.Byte(':'), space_.after_colon, value});
}

Expr JsonCompiler::Bracketed(char open, Expr content, char close) {
  return pool_.Concat({pool_.Byte(static_cast<uint8_t>(open)), space_.inside, content,
                       space_.inside, pool_.Byte(static_cast<uint8_t>(close))});
}

Expr JsonCompiler::EmptyBrackets(char open, char close) {
  return pool_.Concat({pool_.Byte(static_cast<uint8_t>(open)), space_.in_empty,
                       pool_.Byte(static_cast<uint8_t>(close))});
}

// A value of enum or const, as json.dumps writes it.
Expr JsonCompiler::Literal(const JsonValue& value) {
  if (const std::string* text = value.AsString()) {
    return pool_.Concat({quote_, TextLiteral(*text), quote_});
  }
  if (!value.is_array() && !value.is_object()) {
    std::string text = value.Dump();
    // A whole number may also have the fraction that Python writes for floats.
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    const bool whole = value.is_number() && text.find_first_of(".eE") == std::string::npos;
    const Expr literal = pool_.Literal(text);
    return whole ? pool_.Concat(literal, pool_.Optional(pool_.Literal(".0"))) : literal;
  }
  const auto join = [&](const std::vector<Expr>& parts) {
    Expr content = kEmpty;
    for (size_t i = parts.size(); i-- > 0;) {
      content = pool_.Concat({i > 0 ? comma_ : kEmpty, parts[i], content});
    }
    return content;
  };
  std::vector<Expr> parts;
  if (const JsonValue::Array* elements = value.AsArray()) {
    for (const JsonValue& element : *elements) parts.push_back(Literal(element));
    return parts.empty() ? EmptyBrackets('[', ']') : Bracketed('[', join(parts), ']');
  }
  for (const auto& [name, member] : *value.AsObject()) {
    parts.push_back(MemberText(TextLiteral(name), Literal(member)));
  }
  return parts.empty() ? EmptyBrackets('{', '}') : Bracketed('{', join(parts), '}');
}

Result<Expr> JsonCompiler::Pattern(const JsonValue* place, std::string_view pattern) {
  Result<Expr> result =
      RegexExpr(pool_, pattern, {.ecma = true}, [&](const CodePoints& set) { return Char(set); });
  if (!result.ok()) return result.status().WithContext(document_.PathOf(place));
  return result;
}

Result<Expr> JsonCompiler::StringContent(const Merged& merged) {
  std::vector<Expr> terms;
  for (const JsonValue* pattern : merged.patterns) {
    ASSIGN_OR_RETURN(const Expr expr, Pattern(pattern, *pattern->AsString()));
    terms.push_back(expr);
  }
  for (const JsonValue* format : merged.formats) {
    const std::string& name = *format->AsString();
    const std::optional<std::string> pattern = FormatPattern(name);
    if (pattern) {
      ASSIGN_OR_RETURN(const Expr expr, Pattern(format, *pattern));
      terms.push_back(expr);
      if (name == "hostname") {
        terms.push_back(pool_.Repeat(Char(CodePoints::All()), 0, kMaxHostname));
      }
    } else if (IsStandardFormat(name)) {
      return document_.Refuse(format, "", "the format \"" + name + "\" is not supported");
    }
  }
  const bool limited = merged.min_length > 0 || merged.max_length < UINT32_MAX;
  // Patterns and exclusions know one way to write each character, so lengths must count that.
  const bool canonical = !terms.empty() || !merged.forbidden.empty() || chars_ == Chars::kText;
  const Expr any = canonical ? Char(CodePoints::All()) : string_char_;
  if (limited || terms.empty()) {
    if (merged.min_length > merged.max_length) return kNothing;
    terms.push_back(pool_.Repeat(any, static_cast<uint32_t>(merged.min_length),
                                 static_cast<uint32_t>(merged.max_length)));
  }
  for (const JsonValue* text : merged.forbidden) {
    terms.push_back(pool_.Not(TextLiteral(*text->AsString())));
  }
  return pool_.And(terms);
}

Result<Expr> JsonCompiler::String(const Merged& merged) {
  ASSIGN_OR_RETURN(const Expr content, StringContent(merged));
  return pool_.Concat({quote_, content, quote_});
}

Result<Expr> JsonCompiler::Array(const Schemas& schemas, const Merged& merged) {
  uint64_t most = merged.max_items;
  if (merged.unique_items != nullptr && most > 1) {
    return document_.Refuse(merged.unique_items, "uniqueItems", "is not supported");
  }
  size_t prefix = 0;
  Schemas rest;
  for (const ArrayRules& array : merged.arrays) {
    if (array.prefix != nullptr) prefix = std::max(prefix, array.prefix->size());
    if (array.items != nullptr) rest.push_back(array.items);
  }
  if (prefix > 1000) return document_.Refuse(schemas[0], "prefixItems", "has too many schemas");
  if (AnyIsFalse(rest)) most = std::min<uint64_t>(most, prefix);
  if (most < merged.min_items) return kNothing;
  const auto at_least = [&](uint64_t items) {
    return static_cast<uint32_t>(merged.min_items > items ? merged.min_items - items : 0);
  };
  // `tail`: what may follow `items` elements.
  Expr tail = kEmpty, first = kNothing;
  if (most > prefix) {
    ASSIGN_OR_RETURN(const Expr element, Value(rest));
    const uint64_t before = std::max<uint64_t>(prefix, 1);
    const auto left = most == UINT32_MAX ? kNoLimit : static_cast<uint32_t>(most - before);
    tail = pool_.Repeat(pool_.Concat(comma_, element), at_least(before), left);
    if (prefix == 0) first = pool_.Concat(element, tail);
  }
  for (size_t i = std::min<size_t>(prefix, most); i-- > 0;) {
    Schemas at;
    for (const ArrayRules& array : merged.arrays) {
      if (array.prefix != nullptr && i < array.prefix->size()) {
        at.push_back(&(*array.prefix->AsArray())[i]);
      } else if (array.items != nullptr) {
        at.push_back(array.items);
      }
    }
    ASSIGN_OR_RETURN(const Expr element, Value(std::move(at)));
    if (i == 0) {
      first = pool_.Concat(element, tail);
    } else {
      tail = pool_.Concat({comma_, element, tail});
      if (i >= merged.min_items) tail = pool_.Optional(tail);
    }
  }
  return pool_.Or(
      {merged.min_items == 0 ? EmptyBrackets('[', ']') : kNothing, Bracketed('[', first, ']')});
}

Result<bool> JsonCompiler::Matches(const JsonValue* place, std::string_view pattern,
                                   std::string_view text) {
  const auto [entry, added] = automata_.try_emplace(pattern);
  auto& [pool, start] = entry->second;
  const uint64_t before = pool.work();
  pool.Allow(std::min(kMatchWork, work_left() / kPoolWork));
  if (added) {
    Result<Expr> expr = RegexExpr(pool, pattern, {.ecma = true},
                                  [&pool = pool](const auto& set) { return Utf8Char(pool, set); });
    if (!expr.ok()) return expr.status().WithContext(document_.PathOf(place));
    start = pool.Seal(*expr);
  }
  const Expr state = pool.Derive(start, text);
  RETURN_IF_ERROR(Spend(place, (pool.work() - before) * kPoolWork + text.size() + kPoolWork));
  if (pool.trouble() != ExprPool::Trouble::kNone) {
    return document_.Refuse(place, "", "it takes too much work to match this pattern with names");
  }
  return pool.nullable(state);
}

Result<bool> JsonCompiler::DisjointStrings(const Merged& a, const Merged& b) {
  ExprPool pool;
  pool.Allow(std::min(kMatchWork, work_left() / kPoolWork));
  JsonCompiler other(pool, document_, JsonSpace());  // expressions belong to one pool
  std::vector<Expr> terms;
  for (const Merged* merged : {&a, &b}) {
    ASSIGN_OR_RETURN(const Expr content, other.StringContent(*merged));
    terms.push_back(content);
    if (merged->values) terms.push_back(other.Texts(*merged->values));
  }
  const bool empty = pool.Seal(pool.And(terms)) == kNothing;
  RETURN_IF_ERROR(Spend(TrueSchema(), kStringWork + pool.work() * kPoolWork));
  return empty && pool.trouble() == ExprPool::Trouble::kNone;
}

// Looks for a member that one demands and the other has with other values, or must not have.
Result<bool> JsonCompiler::DisjointObjects(const Merged& left, const Merged& right, int depth) {
  for (const Merged* merged : {&left, &right}) {
    const Merged& other = merged == &left ? right : left;
    const std::set<std::string_view> demanded(other.required.begin(), other.required.end());
    RETURN_IF_ERROR(Spend(TrueSchema(), demanded.size() * kValueWork));
    for (const std::string& name : merged->required) {
      ASSIGN_OR_RETURN(const Schemas others, ForName(other, name));
      if (AnyIsFalse(others)) return true;
      if (!demanded.contains(name)) continue;
      ASSIGN_OR_RETURN(const Schemas own, ForName(*merged, name));
      ASSIGN_OR_RETURN(const bool disjoint, Disjoint(own, others, depth - 1));
      if (disjoint) return true;
    }
  }
  return false;
}

Result<bool> JsonCompiler::Disjoint(const Schemas& a, const Schemas& b, int depth) {
  ASSIGN_OR_RETURN(const Merged left, Merge(a));
  ASSIGN_OR_RETURN(const Merged right, Merge(b));
  const uint8_t types = left.types & right.types;
  if (types == 0) return true;
  if (left.values && right.values) {
    const std::vector<bool> common = Among(*left.values, *right.values, kMaxWork, work_);
    RETURN_IF_ERROR(Spend(a.back(), 0));
    return std::find(common.begin(), common.end(), true) == common.end();
  }
  const auto possible = [&](const Merged& merged, uint8_t type) {
    return !merged.values ||
           std::any_of(merged.values->begin(), merged.values->end(),
                       [&](const JsonValue* value) { return TypeOf(*value) == type; });
  };
  for (const uint8_t type : {kNull, kBoolean, kInteger, kFraction, kString, kArray, kObject}) {
    if ((types & type) == 0 || !possible(left, type) || !possible(right, type)) continue;
    if (type == kString) {
      ASSIGN_OR_RETURN(const bool disjoint, DisjointStrings(left, right));
      if (disjoint) continue;
    }
    if (type == kInteger || type == kFraction) {
      NumberLimits both = left.numbers;
      if (right.numbers.min) both.AtLeast(*right.numbers.min, right.numbers.above_min);
      if (right.numbers.max) both.AtMost(*right.numbers.max, right.numbers.below_max);
      const int order = both.min && both.max ? Compare(*both.min, *both.max) : -1;
      if (order > 0 || (order == 0 && (both.above_min || both.below_max))) continue;
    }
    if (type == kObject && depth > 0) {
      ASSIGN_OR_RETURN(const bool disjoint, DisjointObjects(left, right, depth));
      if (disjoint) continue;
    }
    return false;
  }
  return true;
}

}  // namespace tokamak::grammar
