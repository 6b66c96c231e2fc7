#include "weights/config.h"

#include "base/error.h"
#include "base/printable.h"

namespace tokamak {
namespace {

// Far beyond any real configuration.
constexpr JsonLimits kLimits = {
    .max_bytes = size_t{16} << 20, .max_depth = 32, .distinct_names = true};

Status Refusal(const JsonError& error, std::string_view text, const std::string& source) {
  switch (error.kind) {
    case JsonError::kTooLong:
      return ResourceExhausted("{}: has {} bytes of JSON; at most {} are accepted", source,
                               text.size(), kLimits.max_bytes);
    case JsonError::kTooDeep:
      return InvalidArgument("{}: objects and arrays are nested more than {} levels deep", source,
                             kLimits.max_depth);
    case JsonError::kRepeatedName:
      return InvalidArgument("{}: {} appears twice in one object", source, Quoted(error.text));
    case JsonError::kMalformed:
    case JsonError::kOutOfRange:
      break;
  }
  return InvalidArgument("{}: at byte {}: malformed JSON at {}", source, error.byte,
                         Quoted(error.text));
}

}  // namespace

Result<JsonValue> ParseConfigJson(std::string_view text, const std::string& source) {
  JsonError error;
  std::optional<JsonValue> value = JsonValue::Parse(text, kLimits, &error);
  if (!value) return Refusal(error, text, source);
  if (!value->is_object()) {
    return InvalidArgument("{}: must be a JSON object, got {}", source, value->ToString());
  }
  return *std::move(value);
}

}  // namespace tokamak
