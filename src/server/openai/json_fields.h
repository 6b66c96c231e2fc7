// Reads a request's JSON. A field that is null counts as absent, as in OpenAI's API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "base/json/json_reader.h"
#include "tokamak/status.h"

namespace tokamak {

// Parses a body, which must be a JSON object. The message of an error has no path.
Result<JsonValue> ParseBody(const std::string& body);

// Returns "a fraction", "an object" and so on, for errors.
std::string DescribeJson(const JsonValue& value);

// A reader of a body that remembers which of its fields were read. `body` must outlive it.
JsonReader ReadFields(const JsonValue& body);

// Returns the names of the fields that `read` reads.
std::vector<std::string> NamesReadBy(FunctionRef<void(const JsonReader& fields)> read);

// A text or its token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;
// Reads a text, token ids, or a list of either with at most `max` entries.
std::vector<PromptInput> ReadPromptInputs(const JsonReader& field, size_t max);

}  // namespace tokamak
