#include "grammar/json_merge.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"

namespace tokamak::grammar {

namespace {

constexpr size_t kMaxMerged = 1000;  // schemas that hold together
// Work, in units of about 10 ns.
constexpr uint64_t kSchemaWork = 200;
constexpr uint64_t kNameWork = 10;  // to find or copy a name
constexpr uint64_t kStepWork = 10;  // along references

// Keywords that restrict values in ways that an automaton over the text does not follow.
constexpr std::array<std::string_view, 7> kUnsupported = {
    "if", "contains", "minContains", "$dynamicRef", "$recursiveRef", "disallow", "divisibleBy"};
// The same, but these ask for nothing if they are true or an empty object.
constexpr std::array<std::string_view, 7> kUnsupportedUnlessTrue = {
    "unevaluatedProperties", "unevaluatedItems", "dependentRequired", "dependentSchemas",
    "dependencies",          "extends",          "$vocabulary"};

// Keywords whose values are no schemas, but may look like them.
constexpr std::array<std::string_view, 4> kData = {"enum", "const", "default", "examples"};
// Keywords whose values are objects of schemas by any name.
constexpr std::array<std::string_view, 5> kSchemasByName = {
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};

template <size_t n>
bool Contains(const std::array<std::string_view, n>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool IsSchema(const JsonValue& value) { return value.is_object() || value.AsBool().has_value(); }

uint8_t TypeNamed(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, uint8_t>, 7> kNames = {
      {{"null", kNull},
       {"boolean", kBoolean},
       {"integer", kInteger},
       {"number", kInteger | kFraction},
       {"string", kString},
       {"array", kArray},
       {"object", kObject}}};
  for (const auto& [known, type] : kNames) {
    if (known == name) return type;
  }
  return 0;
}

std::string DecodePointer(std::string_view token) {
  std::string result;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size()) {
      result += token[++i] == '1' ? '/' : '~';
    } else if (token[i] == '%' && i + 2 < token.size()) {
      result +=
          static_cast<char>(std::strtol(std::string(token.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      result += token[i];
    }
  }
  return result;
}

// Appends the steps that lead from a value to `place`. Returns false if it is not within the value.
bool FindPath(const JsonValue& from, const JsonValue* place, std::string& path) {
  if (&from == place) return true;
  const size_t size = path.size();
  const auto found = [&](const std::string& step, const JsonValue& child) {
    path += step;
    if (FindPath(child, place, path)) return true;
    path.resize(size);
    return false;
  };
  if (const JsonValue::Object* members = from.AsObject()) {
    for (const auto& [name, member] : *members) {
      if (found("." + name, member)) return true;
    }
  } else if (const JsonValue::Array* elements = from.AsArray()) {
    for (size_t i = 0; i < elements->size(); ++i) {
      if (found("[" + std::to_string(i) + "]", (*elements)[i])) return true;
    }
  }
  return false;
}

// Bounds the work of comparing the value with another one.
uint64_t Extent(const JsonValue& value) {
  uint64_t result = 1;
  if (const std::string* text = value.AsString()) return result + text->size() / 64;
  if (const JsonValue::Array* elements = value.AsArray()) {
    for (const JsonValue& element : *elements) result += Extent(element);
  } else if (const JsonValue::Object* members = value.AsObject()) {
    for (const auto& [name, member] : *members) {
      result += kNameWork + name.size() / 64 + Extent(member);
    }
  }
  return result;
}

}  // namespace

bool IsTrue(const JsonValue& value) {
  return value.AsBool().value_or(false) || (value.is_object() && value.size() == 0);
}

bool AnyIsFalse(const Schemas& schemas) {
  return std::any_of(schemas.begin(), schemas.end(), [](const JsonValue* schema) {
    return schema->AsBool() == std::optional(false);
  });
}

std::vector<bool> Among(const std::vector<const JsonValue*>& values,
                        const std::vector<const JsonValue*>& others, uint64_t max_work,
                        uint64_t& work) {
  std::set<std::string_view> texts;
  std::vector<const JsonValue*> rest;
  uint64_t extent = 0;  // of the rest
  for (const JsonValue* other : others) {
    work += kNameWork;
    if (other->is_string()) {
      texts.insert(*other->AsString());
    } else {
      rest.push_back(other);
      extent += Extent(*other);
    }
  }
  work += extent;
  std::vector<bool> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const JsonValue& value = *values[i];
    work += kNameWork;
    if (value.is_string()) {
      result[i] = texts.contains(*value.AsString());
      continue;
    }
    work += std::min(extent, Extent(value) * rest.size());
    if (work > max_work) break;
    result[i] = std::any_of(rest.begin(), rest.end(),
                            [&](const JsonValue* other) { return value == *other; });
  }
  return result;
}

uint8_t TypeOf(const JsonValue& value) {
  if (value.is_null()) return kNull;
  if (value.AsBool()) return kBoolean;
  if (value.is_string()) return kString;
  if (value.is_array()) return kArray;
  if (value.is_object()) return kObject;
  const double number = value.AsNumber().value_or(0);
  return value.kind() != JsonValue::Kind::kDouble || number == std::floor(number) ? kInteger
                                                                                  : kFraction;
}

SchemaDocument::SchemaDocument(const JsonValue& root) : root_(root) {
  if (const JsonValue* draft = root.Find("$schema"); draft != nullptr && draft->is_string()) {
    for (const char* old : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"}) {
      reference_alone_ |= draft->AsString()->find(old) != std::string::npos;
    }
  }
  FindAnchors();
}

void SchemaDocument::FindAnchors() {
  std::vector<std::pair<const JsonValue*, bool>> open = {{&root_, false}};  // flag: schemas by name
  while (!open.empty()) {
    const auto [value, by_name] = open.back();
    open.pop_back();
    if (by_name) {
      for (const auto& [name, schema] : *value->AsObject()) open.emplace_back(&schema, false);
      continue;
    }
    if (const JsonValue* anchor = value->Find("$anchor");
        anchor != nullptr && anchor->is_string()) {
      anchors_["#" + *anchor->AsString()] = value;
    }
    // Draft 4 to 6 write anchors as identifiers.
    for (const char* name : {"$id", "id"}) {
      const JsonValue* id = value->Find(name);
      if (id != nullptr && id->is_string() && id->AsString()->size() > 1) {
        anchors_[*id->AsString()] = value;
      }
    }
    if (const JsonValue::Array* elements = value->AsArray()) {
      for (const JsonValue& element : *elements) open.emplace_back(&element, false);
    } else if (const JsonValue::Object* members = value->AsObject()) {
      for (const auto& [keyword, child] : *members) {
        if (Contains(kData, keyword)) continue;
        open.emplace_back(&child, child.is_object() && Contains(kSchemasByName, keyword));
      }
    }
  }
}

std::string SchemaDocument::PathOf(const JsonValue* place) const {
  std::string path = "$";
  FindPath(root_, place, path);
  constexpr size_t kMaxPath = 300;
  if (path.size() > kMaxPath) {
    size_t end = kMaxPath;
    while ((path[end] & 0xC0) == 0x80) --end;  // not within a character
    path = path.substr(0, end) + "...";
  }
  return path;
}

Status SchemaDocument::Refuse(const JsonValue* schema, std::string_view keyword,
                              std::string_view why) const {
  return InvalidArgument("{}{}{}: {}", PathOf(schema), keyword.empty() ? "" : ".", keyword, why);
}

Result<const JsonValue*> SchemaDocument::Resolve(const JsonValue* schema,
                                                 const JsonValue& reference) const {
  const std::string* text = reference.AsString();
  if (text == nullptr) return Refuse(schema, "$ref", "must be a string");
  std::string_view target = *text;
  if (const auto known = anchors_.find(target);
      known != anchors_.end() && !target.starts_with("#/")) {
    return known->second;
  }
  if (const JsonValue* id = root_.Find("$id"); id != nullptr && id->is_string()) {
    const std::string_view own = *id->AsString();
    if (target.starts_with(own) && !own.empty()) target.remove_prefix(own.size());
  }
  const JsonValue* place = &root_;
  if (target == "#" || (target.empty() && !text->empty())) return place;
  if (!target.starts_with("#/")) {
    return Refuse(schema, "$ref",
                  "\"" + *text + "\" is not within the schema; only such references are supported");
  }
  target.remove_prefix(2);
  for (bool more = true; more && place != nullptr;) {
    const size_t end = std::min(target.find('/'), target.size());
    const std::string token = DecodePointer(target.substr(0, end));
    more = end < target.size();
    target.remove_prefix(std::min(end + 1, target.size()));
    if (const JsonValue::Array* elements = place->AsArray()) {
      size_t index = 0;
      const char* last = token.data() + token.size();
      const auto [stop, error] = std::from_chars(token.data(), last, index);
      const bool number = error == std::errc() && stop == last;
      place = number && index < elements->size() ? &(*elements)[index] : nullptr;
    } else {
      place = place->Find(token);
    }
  }
  if (place == nullptr) return Refuse(schema, "$ref", "\"" + *text + "\" does not exist");
  return place;
}

Result<Merged> SchemaDocument::Merge(const Schemas& schemas, uint64_t max_work) const {
  Merged merged;
  merged.max_work = max_work;
  Schemas pending = schemas;
  std::map<const JsonValue*, const JsonValue*> source;  // the schema that led to another one
  for (const JsonValue* schema : pending) source[schema] = nullptr;
  for (size_t i = 0; i < pending.size() && merged.types != 0; ++i) {
    Schemas more;
    merged.work += kSchemaWork;
    RETURN_IF_ERROR(Add(pending[i], merged, more));
    if (pending.size() + more.size() > kMaxMerged) {
      return Refuse(pending[0], "", "combines more than 1,000 schemas");
    }
    size_t next = i + 1;  // depth first, so that properties keep their order
    for (const JsonValue* schema : more) {
      if (source.try_emplace(schema, pending[i]).second) {
        pending.insert(pending.begin() + static_cast<ptrdiff_t>(next++), schema);
        continue;
      }
      for (const JsonValue* from = pending[i]; from != nullptr; from = source[from]) {
        merged.work += kStepWork;
        if (from == schema) return Refuse(pending[i], "", "refers to itself");
      }
    }
    if (merged.work > max_work) return Refuse(pending[i], "", kTooMuchWork);
  }
  return merged;
}

Status SchemaDocument::Add(const JsonValue* schema, Merged& merged, Schemas& pending) const {
  if (const std::optional<bool> all = schema->AsBool()) {
    if (!*all) merged.types = 0;
    return {};
  }
  const JsonValue::Object* members = schema->AsObject();
  if (members == nullptr) return Refuse(schema, "", "a schema must be an object or a boolean");
  merged.work += members->size() * kNameWork;
  if (const JsonValue* reference = schema->Find("$ref")) {
    if (const std::string* text = reference->AsString()) merged.work += text->size();
    ASSIGN_OR_RETURN(const JsonValue* target, Resolve(schema, *reference));
    pending.push_back(target);
    if (reference_alone_) return {};
  }
  ObjectRules object;
  ArrayRules array;
  const JsonValue* items = schema->Find("items");
  array.prefix = schema->Find("prefixItems");
  array.items = items;
  if (items != nullptr && items->is_array()) {  // up to draft 2019-09
    array.prefix = items;
    array.items = schema->Find("additionalItems");
  }
  if (array.prefix != nullptr && !array.prefix->is_array()) {
    return Refuse(schema, "prefixItems", "must be an array");
  }
  object.properties = schema->Find("properties");
  object.patterns = schema->Find("patternProperties");
  object.additional = schema->Find("additionalProperties");
  for (const auto& [name, value] : {std::pair("properties", object.properties),
                                    std::pair("patternProperties", object.patterns)}) {
    if (value != nullptr && !value->is_object()) return Refuse(schema, name, "must be an object");
  }
  if (object.properties != nullptr || object.patterns != nullptr || object.additional != nullptr) {
    merged.objects.push_back(object);
  }
  if (array.prefix != nullptr || array.items != nullptr) merged.arrays.push_back(array);
  for (const auto& [keyword, value] : *members) {
    RETURN_IF_ERROR(AddKeyword(schema, keyword, value, merged, pending));
  }
  return {};
}

Status SchemaDocument::AddTypes(const JsonValue* schema, const JsonValue& value,
                                Merged& merged) const {
  uint8_t types = 0;
  const auto add = [&](const JsonValue& name) {
    const uint8_t type = name.is_string() ? TypeNamed(*name.AsString()) : uint8_t{0};
    types |= type;
    return type != 0;
  };
  bool known = true;
  if (const JsonValue::Array* names = value.AsArray()) {
    merged.work += names->size() * kNameWork;
    for (const JsonValue& name : *names) known = add(name) && known;
  } else {
    known = add(value);
  }
  if (!known) return Refuse(schema, "type", value.ToString() + " is not a type of JSON");
  merged.types &= types;
  return {};
}

Status SchemaDocument::AddCount(const JsonValue* schema, std::string_view keyword,
                                const JsonValue& value, uint64_t& low, uint64_t& high) const {
  const std::optional<double> number = value.AsNumber();
  if (!number || *number < 0 || *number != std::floor(*number)) {
    return Refuse(schema, keyword, "must be a whole number that is not negative");
  }
  const auto count = static_cast<uint64_t>(std::min(*number, double{UINT32_MAX}));
  if (keyword.starts_with("min")) {
    if (count >= UINT32_MAX) return Refuse(schema, keyword, "is too large");
    low = std::max(low, count);
  } else {
    high = std::min(high, count);
  }
  return {};
}

Status SchemaDocument::AddNumber(const JsonValue* schema, std::string_view keyword,
                                 const JsonValue& value, Merged& merged) const {
  // In draft 4 it is a flag, which is read with minimum or maximum.
  if (value.AsBool() && keyword.starts_with("exclusive")) return {};
  const std::optional<Decimal> limit = Decimal::From(value);
  if (!limit) return Refuse(schema, keyword, "must be a number of at most 400 digits");
  const auto flag = [&](std::string_view name) {
    const JsonValue* flagged = schema->Find(name);
    return flagged != nullptr && flagged->AsBool().value_or(false);
  };
  if (keyword == "minimum") merged.numbers.AtLeast(*limit, flag("exclusiveMinimum"));
  if (keyword == "exclusiveMinimum") merged.numbers.AtLeast(*limit, true);
  if (keyword == "maximum") merged.numbers.AtMost(*limit, flag("exclusiveMaximum"));
  if (keyword == "exclusiveMaximum") merged.numbers.AtMost(*limit, true);
  if (keyword == "multipleOf") {
    if (limit->negative || limit->zero()) return Refuse(schema, keyword, "must be above 0");
    if (merged.numbers.multiple_of && Compare(*limit, *merged.numbers.multiple_of) != 0) {
      return Refuse(schema, keyword, "two different values together are not supported");
    }
    merged.numbers.multiple_of = limit;
  }
  return {};
}

Status SchemaDocument::AddNot(const JsonValue* schema, const JsonValue& value,
                              Merged& merged) const {
  if (IsTrue(value)) {
    merged.types = 0;
    return {};
  }
  if (value.AsBool()) return {};  // not false
  const JsonValue::Object* members = value.AsObject();
  constexpr std::string_view kWhy =
      "is not supported, apart from a schema with \"type\" alone, or with \"enum\" or \"const\" "
      "of strings and null alone";
  if (members == nullptr || members->size() != 1) return Refuse(schema, "not", kWhy);
  const auto& [keyword, argument] = (*members)[0];
  if (keyword == "type") {
    Merged types;
    RETURN_IF_ERROR(AddTypes(&value, argument, types));
    // A number that is not whole is all that "not integer" leaves of numbers; no shape for that.
    if ((types.types & (kInteger | kFraction)) == kInteger) return Refuse(schema, "not", kWhy);
    merged.types &= static_cast<uint8_t>(~types.types);
    return {};
  }
  std::vector<const JsonValue*> values;
  if (keyword == "const") {
    values = {&argument};
  } else if (keyword == "enum" && argument.is_array()) {
    for (const JsonValue& element : *argument.AsArray()) values.push_back(&element);
  } else {
    return Refuse(schema, "not", kWhy);
  }
  merged.work += values.size() * kNameWork;
  for (const JsonValue* forbidden : values) {
    if (forbidden->is_null()) {
      merged.types &= static_cast<uint8_t>(~kNull);
    } else if (forbidden->is_string()) {
      merged.forbidden.push_back(forbidden);
    } else {
      return Refuse(schema, "not", kWhy);
    }
  }
  return {};
}

Status SchemaDocument::AddKeyword(const JsonValue* schema, const std::string& keyword,
                                  const JsonValue& value, Merged& merged, Schemas& pending) const {
  const auto need = [&](bool right, std::string_view what) {
    return right ? Status() : Refuse(schema, keyword, what);
  };
  if (keyword == "type") return AddTypes(schema, value, merged);
  if (keyword == "not") return AddNot(schema, value, merged);
  if (keyword == "minimum" || keyword == "maximum" || keyword == "exclusiveMinimum" ||
      keyword == "exclusiveMaximum" || keyword == "multipleOf") {
    return AddNumber(schema, keyword, value, merged);
  }
  if (keyword == "minLength" || keyword == "maxLength") {
    return AddCount(schema, keyword, value, merged.min_length, merged.max_length);
  }
  if (keyword == "minItems" || keyword == "maxItems") {
    return AddCount(schema, keyword, value, merged.min_items, merged.max_items);
  }
  if (keyword == "minProperties" || keyword == "maxProperties") {
    return AddCount(schema, keyword, value, merged.min_properties, merged.max_properties);
  }
  if (keyword == "enum" || keyword == "const") {
    std::vector<const JsonValue*> values = {&value};
    if (keyword == "enum") {
      RETURN_IF_ERROR(need(value.is_array(), "must be an array"));
      values.clear();
      for (const JsonValue& element : *value.AsArray()) values.push_back(&element);
    }
    merged.work += values.size();
    if (merged.values) {
      const std::vector<bool> kept = Among(*merged.values, values, merged.max_work, merged.work);
      size_t i = 0;
      std::erase_if(*merged.values, [&](const JsonValue*) { return !kept[i++]; });
    } else {
      merged.values = std::move(values);
    }
  } else if (keyword == "pattern" || keyword == "format") {
    RETURN_IF_ERROR(need(value.is_string(), "must be a string"));
    (keyword == "pattern" ? merged.patterns : merged.formats).push_back(&value);
  } else if (keyword == "required") {
    if (value.AsBool() == std::optional(false)) return {};  // draft 3: asks for nothing
    RETURN_IF_ERROR(need(value.is_array(), "must be an array of strings"));
    for (const JsonValue& name : *value.AsArray()) {
      RETURN_IF_ERROR(need(name.is_string(), "must be an array of strings"));
      merged.required.push_back(*name.AsString());
      merged.work += kNameWork + name.AsString()->size() / 64;
    }
  } else if (keyword == "allOf") {
    RETURN_IF_ERROR(need(value.is_array(), "must be an array"));
    for (const JsonValue& part : *value.AsArray()) pending.push_back(&part);
  } else if (keyword == "anyOf" || keyword == "oneOf") {
    RETURN_IF_ERROR(need(value.is_array() && value.size() > 0, "must be an array of schemas"));
    merged.choices.emplace_back(&value, keyword == "oneOf" && value.size() > 1);
  } else if (keyword == "propertyNames") {
    RETURN_IF_ERROR(need(IsSchema(value), "must be a schema"));
    if (!IsTrue(value)) merged.names.push_back(&value);
  } else if (keyword == "uniqueItems") {
    if (value.AsBool().value_or(false)) merged.unique_items = schema;
  } else if (Contains(kUnsupported, keyword) ||
             (Contains(kUnsupportedUnlessTrue, keyword) && !IsTrue(value))) {
    return Refuse(schema, keyword, "is not supported");
  }
  return {};
}

}  // namespace tokamak::grammar
