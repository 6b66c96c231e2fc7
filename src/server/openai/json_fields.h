// Reads a request's JSON. A field that is null counts as absent, as in OpenAI's API.
#pragma once

#include <string>
#include <vector>

#include "base/json/json_reader.h"
#include "tokamak/status.h"

namespace tokamak {

// Parses a body, which must be a JSON object. The message of an error has no path.
Result<JsonValue> ParseBody(const std::string& body);

// Returns "a fraction", "an object" and so on, for errors.
std::string DescribeJson(const JsonValue& value);

// A reader of a body that remembers which of its fields were read. `body` must outlive it.
JsonReader ReadFields(const JsonValue& body);

// Names that were read so far.
std::vector<std::string> KnownNames(const JsonReader& fields);

}  // namespace tokamak
