#include "server/openai/json_fields.h"

#include <cmath>

#include "base/error.h"
#include "server/openai/request_limits.h"

namespace tokamak {
namespace {

// All digits of an integer.
std::string NumberText(const JsonValue& number) {
  const std::optional<uint64_t> natural = number.AsUint();
  return natural ? std::to_string(*natural) : number.ToString();
}

std::string Describe(const JsonMismatch& mismatch) {
  if (mismatch.right_type) return fmt::format("{} is out of range", NumberText(*mismatch.got));
  return fmt::format("must be {}, not {}", mismatch.expected,
                     mismatch.got == nullptr ? "null" : DescribeJson(*mismatch.got));
}

}  // namespace

Result<JsonValue> ParseBody(const std::string& body) {
  RETURN_IF_ERROR(CheckJsonShape(body));
  // The parser would take a NUL for the end, and ignore what follows.
  if (const size_t at = body.find('\0'); at != std::string::npos) {
    return InvalidArgument("the body is not valid JSON at byte {}: it has a NUL byte there",
                           at + 1);
  }
  JsonError error;
  std::optional<JsonValue> json = JsonValue::Parse(body, {.max_depth = kMaxJsonDepth}, &error);
  if (!json && error.kind == JsonError::kOutOfRange) {
    return InvalidArgument("the body is not valid JSON: a number is out of range");
  }
  if (!json) {
    return InvalidArgument(
        "the body is not valid JSON at byte {} (strings must be UTF-8 without lone surrogates, "
        "numbers finite)",
        error.byte);
  }
  if (!json->is_object()) return InvalidArgument("the body must be a JSON object");
  return *std::move(json);
}

std::string DescribeJson(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return "a boolean";
    case JsonValue::Kind::kInt:
    case JsonValue::Kind::kUint:
      return "an integer";
    case JsonValue::Kind::kString:
      return "a string";
    case JsonValue::Kind::kArray:
      return "an array";
    case JsonValue::Kind::kObject:
      return "an object";
    case JsonValue::Kind::kDouble:
    case JsonValue::Kind::kBigInt:
      break;
  }
  const double number = *value.AsDouble();
  return number == std::trunc(number) && std::abs(number) > 1e15 ? "a number of more than 64 bits"
                                                                 : "a fraction";
}

JsonReader ReadFields(const JsonValue& body) {
  return JsonReader(body, "", Describe, JsonReader::Track::kOutermost);
}

std::vector<std::string> NamesReadBy(FunctionRef<void(const JsonReader& fields)> read) {
  const JsonValue nothing{JsonValue::Object()};
  const JsonReader fields = ReadFields(nothing);
  read(fields);
  std::vector<std::string> names;
  for (const auto& [name, use] : fields.uses()) names.push_back(name);
  return names;
}

std::vector<PromptInput> ReadPromptInputs(const JsonReader& field, size_t max) {
  std::vector<PromptInput> inputs;
  if (!field.present()) {
    field.Fail("is missing");
  } else if (field.is_string()) {
    inputs.emplace_back(field.String());
  } else if (!field.is_array()) {
    field.Bad("a string, token ids, or an array of either");
  } else if (field.Size() == 0) {
    field.Fail("must not be empty");
  } else if (field[0].value().is_number()) {
    inputs.emplace_back(field.Int32s());
  } else {
    field.ForEach(max, [&](const JsonReader& one) {
      if (one.is_string()) {
        inputs.emplace_back(one.String());
      } else if (one.is_array()) {
        inputs.emplace_back(one.Int32s());
      } else {
        one.Bad("a string or token ids");
      }
    });
  }
  return inputs;
}

}  // namespace tokamak
