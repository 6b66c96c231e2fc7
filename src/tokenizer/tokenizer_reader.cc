#include "tokenizer/tokenizer_reader.h"

#include "base/error.h"
#include "base/utf8.h"

namespace tokamak {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = size_t{256} << 20, .max_depth = 64};

std::string Describe(const JsonMismatch& mismatch) {
  return fmt::format("expected {}{}", mismatch.expected, mismatch.range);
}

}  // namespace

Result<JsonValue> ParseTokenizerObject(std::string_view text, const std::string& source) {
  JsonError error;
  std::optional<JsonValue> value = JsonValue::Parse(text, kLimits, &error);
  if (!value && (error.kind == JsonError::kTooLong || error.kind == JsonError::kTooDeep)) {
    return ResourceExhausted(
        "{}: has {} bytes of JSON, or is nested too deep; at most {} bytes and {} levels are "
        "supported",
        source, text.size(), kLimits.max_bytes, kLimits.max_depth);
  }
  if (!value || !value->is_object()) {
    return InvalidArgument("{}: is not a well-formed JSON object", source);
  }
  return *std::move(value);
}

JsonReader ReadTokenizerObject(const JsonValue& file, const std::string& source) {
  return JsonReader(file, source + ": ", Describe, JsonReader::Track::kNone);
}

void Unsupported(const JsonReader& node, std::string_view what) {
  node.Fail(
      Unimplemented("{}: \"{}\" is not supported", node.path(), ToValidUtf8(what.substr(0, 100))));
}

}  // namespace tokamak
