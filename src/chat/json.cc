#include "chat/json.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tokamak {

using jinja::Value;

Value ToTemplateValue(const JsonValue& json) {
  switch (json.kind()) {
    case JsonValue::Kind::kNull:
      break;
    case JsonValue::Kind::kBool:
      return Value::Bool(*json.AsBool());
    case JsonValue::Kind::kInt:
      return Value::Int(*json.AsInt());
    case JsonValue::Kind::kUint:
      return Value::BigInt(std::to_string(*json.AsUint()));
    case JsonValue::Kind::kBigInt:
      return Value::BigInt(*json.AsBigInt());
    case JsonValue::Kind::kDouble:
      return Value::Float(*json.AsDouble());
    case JsonValue::Kind::kString:
      return Value::String(*json.AsString());
    case JsonValue::Kind::kArray: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const JsonValue& item : *json.AsArray()) items.push_back(ToTemplateValue(item));
      return Value::List(std::move(items));
    }
    case JsonValue::Kind::kObject: {
      auto dict = std::make_unique<jinja::DictObject>();
      for (const auto& [name, value] : *json.AsObject()) {
        dict->Set(Value::String(name), ToTemplateValue(value));
      }
      return jinja::MakeDict(std::move(dict), nullptr);
    }
  }
  return Value::None();
}

Result<Value> ParseJson(std::string_view text) {
  constexpr JsonLimits kLimits = {.max_depth = 100};
  JsonError error;
  const std::optional<JsonValue> json = JsonValue::Parse(text, kLimits, &error);
  if (json) return ToTemplateValue(*json);
  if (error.kind == JsonError::kTooDeep) {
    return InvalidArgument("the JSON nests deeper than {} levels", kLimits.max_depth);
  }
  // The parser's own message repeats its input, which may be long and need not be text.
  return InvalidArgument(
      "not valid JSON at byte {} (strings must be UTF-8 without lone surrogates)", error.byte);
}

}  // namespace tokamak
