// Objects of JSON Schema as lists of parameters, as models write them that put arguments in tags.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "grammar/json_compiler.h"
#include "grammar/regex.h"

namespace tokamak::grammar {

namespace {

// Any reader takes this for a name, whatever stands around it.
constexpr std::string_view kName = "[A-Za-z0-9_.-]{1,128}";

bool IsName(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<uint8_t>(c) <= ' ' || c == '<' || c == '>';
  });
}

}  // namespace

Status JsonCompiler::CheckParameters(const JsonValue& schema, const Merged& merged,
                                     const std::vector<Member>& members) {
  constexpr char kWhy[] = "is not supported for arguments in tags";
  if (!merged.choices.empty()) {
    return InvalidArgument("{}: alternatives are not supported for arguments in tags",
                           document_.PathOf(merged.choices[0].first));
  }
  if (merged.values) return document_.Refuse(&schema, "", "enum or const " + std::string(kWhy));
  if (!merged.names.empty()) return document_.Refuse(merged.names[0], "", kWhy);
  for (const ObjectRules& object : merged.objects) {
    if (object.patterns == nullptr || object.patterns->size() == 0) continue;
    return document_.Refuse(object.patterns, "", kWhy);
  }
  const auto required = std::count_if(members.begin(), members.end(),
                                      [](const Member& member) { return member.required; });
  if (merged.min_properties > static_cast<uint64_t>(required)) {
    return document_.Refuse(&schema, "minProperties", kWhy);
  }
  if (merged.max_properties < UINT32_MAX) return document_.Refuse(&schema, "maxProperties", kWhy);
  for (const Member& member : members) {
    if (IsName(member.name)) continue;
    return document_.Refuse(&schema, "", "the name \"" + member.name + "\" " + kWhy);
  }
  return Status();
}

Result<Expr> JsonCompiler::Text(const Schemas& schemas, Expr without_stops) {
  ASSIGN_OR_RETURN(const Merged merged, Merge(schemas));
  if (!merged.choices.empty()) {
    return InvalidArgument("{}: alternatives are not supported for a string in tags",
                           document_.PathOf(merged.choices[0].first));
  }
  if ((merged.types & kString) == 0) return kNothing;
  const Chars before = std::exchange(chars_, Chars::kText);
  Result<Expr> content = StringContent(merged);
  std::vector<Expr> terms = {without_stops};
  if (merged.values) terms.push_back(Texts(*merged.values));
  chars_ = before;
  if (!content.ok()) return content;
  terms.push_back(*content);
  return pool_.And(terms);
}

Result<Expr> JsonCompiler::Parameters(const JsonValue& schema,
                                      const GrammarSpec::Parameters& form) {
  ASSIGN_OR_RETURN(const Merged merged, Merge({&schema}));
  if ((merged.types & kObject) == 0) return kNothing;
  ASSIGN_OR_RETURN(const std::vector<Member> members, NamedMembers(merged));
  RETURN_IF_ERROR(CheckParameters(schema, merged, members));
  ASSIGN_OR_RETURN(const Expr before_name, RegexExpr(pool_, form.before_name));
  ASSIGN_OR_RETURN(const Expr after_name, RegexExpr(pool_, form.after_name));
  ASSIGN_OR_RETURN(const Expr after_value, RegexExpr(pool_, form.after_value));
  const auto parameter = [&](Expr name, Expr value) {
    return pool_.Concat({before_name, name, after_name, value, after_value});
  };
  std::vector<Expr> stops, known;
  for (const std::string& stop : form.stops) stops.push_back(pool_.Literal(stop));
  const Expr any = pool_.Anything();
  const Expr without_stops = pool_.Not(pool_.Concat({any, pool_.Or(std::move(stops)), any}));
  for (const Member& member : members) known.push_back(pool_.Literal(member.name));

  // Parameters that have no name in the schema may repeat one.
  Schemas additional;
  for (const ObjectRules& object : merged.objects) {
    if (object.additional != nullptr) additional.push_back(object.additional);
  }
  Expr extra = kNothing;
  if (!AnyIsFalse(additional)) {
    const bool anything = std::all_of(additional.begin(), additional.end(),
                                      [](const JsonValue* one) { return IsTrue(*one); });
    ASSIGN_OR_RETURN(const Expr value,
                     anything ? Text({TrueSchema()}, without_stops) : Value(additional));
    ASSIGN_OR_RETURN(const Expr names, RegexExpr(pool_, kName));
    extra = parameter(pool_.And({names, pool_.Not(pool_.Or(std::move(known)))}), value);
  }
  ASSIGN_OR_RETURN(const Expr end, RegexExpr(pool_, form.end));
  Expr all = pool_.Concat(pool_.Star(extra), end);
  for (size_t i = members.size(); i-- > 0;) {
    const std::string& name = members[i].name;
    ASSIGN_OR_RETURN(Schemas schemas, ForName(merged, name));
    Expr one = kNothing;
    if (!AnyIsFalse(schemas)) {
      const bool is_text =
          std::find(form.texts.begin(), form.texts.end(), name) != form.texts.end();
      ASSIGN_OR_RETURN(const Expr value,
                       is_text ? Text(schemas, without_stops) : Value(std::move(schemas)));
      one = parameter(pool_.Literal(name), value);
    }
    all = pool_.Concat(members[i].required ? one : pool_.Optional(one), all);
  }
  return all;
}

}  // namespace tokamak::grammar
