// Objects of JSON Schema: members in the schema's order, then all others.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "grammar/json_compiler.h"

namespace tokamak::grammar {

namespace {

constexpr size_t kMaxCombinedPatterns = 4;  // with more, a name matches one of them
constexpr size_t kMaxPatterns = 100;        // of all schemas together
// Work, in units of about 10 ns.
constexpr uint64_t kLookUpWork = 10;
constexpr uint64_t kMemberWork = 80;  // to find a member's name among others
constexpr size_t kMaxCounted = 128;   // members whose number is counted

}  // namespace

Result<Schemas> JsonCompiler::ForName(const Merged& merged, const std::string& name) {
  Schemas result;
  RETURN_IF_ERROR(Spend(TrueSchema(), (1 + merged.objects.size()) * kLookUpWork));
  for (const ObjectRules& object : merged.objects) {
    bool named = false;
    if (object.properties != nullptr) {
      if (const JsonValue* schema = object.properties->Find(name)) {
        result.push_back(schema);
        named = true;
      }
    }
    if (object.patterns != nullptr) {
      for (const auto& [pattern, schema] : *object.patterns->AsObject()) {
        ASSIGN_OR_RETURN(const bool matches, Matches(&schema, pattern, name));
        if (!matches) continue;
        result.push_back(&schema);
        named = true;
      }
    }
    if (!named && object.additional != nullptr) result.push_back(object.additional);
  }
  if (result.empty()) result.push_back(TrueSchema());
  return result;
}

Result<std::vector<JsonCompiler::Member>> JsonCompiler::NamedMembers(const Merged& merged) {
  std::vector<Member> members;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) members.push_back({name});
  };
  for (const ObjectRules& object : merged.objects) {
    if (object.properties == nullptr) continue;
    for (const auto& [name, schema] : *object.properties->AsObject()) add(name);
  }
  for (const std::string& name : merged.required) add(name);
  RETURN_IF_ERROR(Spend(TrueSchema(), (members.size() + merged.required.size()) * kMemberWork));
  const std::set<std::string> required(merged.required.begin(), merged.required.end());
  for (Member& member : members) member.required = required.contains(member.name);
  return members;
}

Result<std::vector<JsonCompiler::Member>> JsonCompiler::Members(const Merged& merged) {
  ASSIGN_OR_RETURN(std::vector<Member> members, NamedMembers(merged));
  Expr allowed_names = kNothing;
  if (!merged.names.empty()) {
    ASSIGN_OR_RETURN(allowed_names, Names(merged));
  }
  for (Member& member : members) {
    if (out_of_work()) break;
    ASSIGN_OR_RETURN(const Schemas schemas, ForName(merged, member.name));
    if (AnyIsFalse(schemas)) continue;
    ASSIGN_OR_RETURN(const Expr value, Value(schemas));
    Expr name = TextLiteral(member.name);
    if (!merged.names.empty()) name = pool_.And({name, allowed_names});
    member.text = MemberText(name, value);
  }
  return members;
}

// The names that "propertyNames" allows.
Result<Expr> JsonCompiler::Names(const Merged& merged) {
  ASSIGN_OR_RETURN(const Merged names, Merge(merged.names));
  if (!names.choices.empty()) {
    return document_.Refuse(merged.names[0], "", "alternatives for names are not supported");
  }
  if ((names.types & kString) == 0) return kNothing;
  std::vector<Expr> terms = {pool_.Star(Char(CodePoints::All()))};
  if (names.limits_strings()) {
    ASSIGN_OR_RETURN(const Expr content, StringContent(names));
    terms.push_back(content);
  }
  if (names.values) terms.push_back(Texts(*names.values));
  return pool_.And(terms);
}

// A member with any other name. For each set of patterns that a name may match there is a language
// of names, and the schemas that its value must fit.
Result<Expr> JsonCompiler::Extra(const Merged& merged, const std::vector<Member>& members) {
  std::vector<const std::string*> patterns;
  std::vector<Expr> pattern_exprs;
  for (const ObjectRules& object : merged.objects) {
    if (object.patterns == nullptr) continue;
    for (const auto& [pattern, schema] : *object.patterns->AsObject()) {
      const auto same = [&name = pattern](const std::string* other) { return *other == name; };
      if (std::any_of(patterns.begin(), patterns.end(), same)) continue;
      ASSIGN_OR_RETURN(const Expr expr, Pattern(&schema, pattern));
      patterns.push_back(&pattern);
      pattern_exprs.push_back(expr);
    }
  }
  std::vector<Expr> known;
  for (const Member& member : members) known.push_back(TextLiteral(member.name));
  std::vector<Expr> shared;  // what all such names have in common
  if (!known.empty()) shared.push_back(pool_.Not(pool_.Or(std::move(known))));
  if (!merged.names.empty()) {
    ASSIGN_OR_RETURN(const Expr names, Names(merged));
    shared.push_back(names);
  }
  const bool canonical = !shared.empty() || !patterns.empty();
  shared.push_back(pool_.Star(canonical ? Char(CodePoints::All()) : string_char_));

  std::vector<Expr> terms;
  const auto add = [&](const std::vector<bool>& chosen) -> Status {
    Schemas schemas;
    const size_t look_ups = merged.objects.size() + patterns.size();
    RETURN_IF_ERROR(Spend(TrueSchema(), look_ups * kLookUpWork));
    for (const ObjectRules& object : merged.objects) {
      bool named = false;
      for (size_t i = 0; i < patterns.size() && object.patterns != nullptr; ++i) {
        const JsonValue* schema = chosen[i] ? object.patterns->Find(*patterns[i]) : nullptr;
        if (schema == nullptr) continue;
        schemas.push_back(schema);
        named = true;
      }
      if (!named && object.additional != nullptr) schemas.push_back(object.additional);
    }
    if (AnyIsFalse(schemas)) return {};
    ASSIGN_OR_RETURN(const Expr value, Value(schemas));
    std::vector<Expr> name = shared;
    for (size_t i = 0; i < patterns.size(); ++i) {
      name.push_back(chosen[i] ? pattern_exprs[i] : pool_.Not(pattern_exprs[i]));
    }
    terms.push_back(MemberText(pool_.And(name), value));
    return {};
  };
  if (patterns.size() <= kMaxCombinedPatterns) {
    for (uint32_t set = 0; set < uint32_t{1} << patterns.size(); ++set) {
      std::vector<bool> chosen(patterns.size());
      for (size_t i = 0; i < patterns.size(); ++i) chosen[i] = (set >> i & 1) != 0;
      RETURN_IF_ERROR(add(chosen));
    }
  } else {
    for (size_t i = 0; i <= patterns.size(); ++i) {
      std::vector<bool> chosen(patterns.size());
      if (i < patterns.size()) chosen[i] = true;
      RETURN_IF_ERROR(add(chosen));
    }
  }
  return pool_.Or(std::move(terms));
}

// Members in order, each at most once, then extra ones.
Expr JsonCompiler::Sequence(const std::vector<Member>& members, Expr extra) {
  Expr rest = pool_.Star(pool_.Concat(comma_, extra));  // after another member
  std::vector<Expr> first = {kEmpty, pool_.Concat(extra, rest)};
  for (size_t i = members.size(); i-- > 0;) {
    const Member& member = members[i];
    if (member.required) first.clear();
    first.push_back(pool_.Concat(member.text, rest));
    const Expr next = pool_.Concat(comma_, member.text);
    rest = pool_.Concat(member.required ? next : pool_.Optional(next), rest);
  }
  const bool may_be_empty = std::erase(first, kEmpty) > 0;
  return pool_.Or({may_be_empty ? EmptyBrackets('{', '}') : kNothing,
                   Bracketed('{', pool_.Or(std::move(first)), '}')});
}

// The same with limits on the number of members. Extra members may repeat a name, so that they
// count as one for the minimum.
Result<Expr> JsonCompiler::CountedSequence(const Schemas& schemas, const Merged& merged,
                                           const std::vector<Member>& members, Expr extra) {
  const uint64_t min = merged.min_properties, max = merged.max_properties;
  const bool limited = max < UINT32_MAX;
  if (min > max) return kNothing;
  if (extra != kNothing && min > members.size() + 1) {
    return document_.Refuse(schemas[0], "minProperties",
                            "more than one property beyond the named ones is not supported");
  }
  const uint64_t cap = limited ? max : std::max<uint64_t>(min, 1);  // counts beyond it are alike
  if (members.size() > kMaxCounted || cap > kMaxCounted) {
    return document_.Refuse(schemas[0], limited ? "maxProperties" : "minProperties",
                            "with more than 128 properties is not supported");
  }
  // follow[c]: what may follow c members, from member i on.
  std::vector<Expr> follow(cap + 1);
  for (uint64_t c = 0; c <= cap; ++c) {
    const uint32_t most = limited ? static_cast<uint32_t>(max - c) : kNoLimit;
    const uint32_t least = c < min ? 1 : 0;
    if (c + 1 < min || (least > 0 && most == 0)) {
      follow[c] = kNothing;
    } else if (c > 0) {
      follow[c] = pool_.Repeat(pool_.Concat(comma_, extra), least, most);
    } else if (most == 0) {
      follow[c] = kEmpty;
    } else {
      follow[c] = pool_.Or({least == 0 ? kEmpty : kNothing,
                            pool_.Concat(extra, pool_.Repeat(pool_.Concat(comma_, extra), 0,
                                                             limited ? most - 1 : kNoLimit))});
    }
  }
  for (size_t i = members.size(); i-- > 0;) {
    const Member& member = members[i];
    std::vector<Expr> next(cap + 1);
    for (uint64_t c = 0; c <= cap; ++c) {
      const bool room = !limited || c < max;
      const Expr with = pool_.Concat(
          {c > 0 ? comma_ : kEmpty, member.text, room ? follow[std::min(c + 1, cap)] : kNothing});
      next[c] = pool_.Or({with, member.required ? kNothing : follow[c]});
    }
    follow = std::move(next);
  }
  const bool may_be_empty =
      min == 0 && std::none_of(members.begin(), members.end(),
                               [](const Member& member) { return member.required; });
  return pool_.Or({may_be_empty ? EmptyBrackets('{', '}') : kNothing,
                   Bracketed('{', NotEmpty(follow[0]), '}')});
}

// Drops the empty alternative, which has brackets of its own.
Expr JsonCompiler::NotEmpty(Expr content) {
  if (content == kEmpty) return kNothing;
  const ExprNode node = pool_[content];
  if (node.op != Op::kOr) return content;
  std::vector<Expr> terms(pool_.operands(node), pool_.operands(node) + node.b);
  std::erase(terms, kEmpty);
  return pool_.Or(std::move(terms));
}

Result<Expr> JsonCompiler::Object(const Schemas& schemas, const Merged& merged) {
  size_t patterns = 0;
  for (const ObjectRules& object : merged.objects) {
    patterns += object.patterns == nullptr ? 0 : object.patterns->size();
    if (patterns <= kMaxPatterns) continue;
    return document_.Refuse(object.patterns, "", "more than 100 patterns are not supported");
  }
  ASSIGN_OR_RETURN(const std::vector<Member> members, Members(merged));
  if (out_of_work()) return kNothing;
  ASSIGN_OR_RETURN(const Expr extra, Extra(merged, members));
  const auto required = std::count_if(members.begin(), members.end(),
                                      [](const Member& member) { return member.required; });
  const bool never_too_few = merged.min_properties <= static_cast<uint64_t>(required);
  const bool never_too_many = merged.max_properties == UINT32_MAX ||
                              (extra == kNothing && merged.max_properties >= members.size());
  if (never_too_few && never_too_many) return Sequence(members, extra);
  return CountedSequence(schemas, merged, members, extra);
}

}  // namespace tokamak::grammar
