#include "weights/config.h"

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"

namespace tokamak {
namespace {

Status Refusal(const JsonError& error, std::string_view text, const JsonLimits& limits,
               const std::string& source) {
  switch (error.kind) {
    case JsonError::kTooLong:
      return ResourceExhausted("{}: has {} bytes of JSON; at most {} are accepted", source,
                               text.size(), limits.max_bytes);
    case JsonError::kTooDeep:
      return InvalidArgument("{}: objects and arrays are nested more than {} levels deep", source,
                             limits.max_depth);
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

Result<JsonValue> ParseConfigJson(std::string_view text, const std::string& source,
                                  size_t max_bytes) {
  const JsonLimits limits = {.max_bytes = max_bytes, .max_depth = 32, .distinct_names = true};
  JsonError error;
  std::optional<JsonValue> value = JsonValue::Parse(text, limits, &error);
  if (!value) return Refusal(error, text, limits, source);
  if (!value->is_object()) {
    return InvalidArgument("{}: must be a JSON object, got {}", source, value->ToString());
  }
  return *std::move(value);
}

Result<JsonValue> ReadConfigFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxConfigBytes));
  return ParseConfigJson(text, path);
}

}  // namespace tokamak
