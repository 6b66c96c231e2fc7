// A model's configuration as a JSON value: config.json, or a translation to it from another format.
// Families read it through ConfigReader (weights/config_reader.h).
#pragma once

#include <string>
#include <string_view>

#include "base/json/json_value.h"
#include "tokamak/status.h"

namespace tokamak {

// Parses JSON text whose outermost value is an object. Refuses malformed, too deeply nested and too
// large text, duplicate names in an object, and numbers that are not finite. `source` names the
// text in messages.
Result<JsonValue> ParseConfigJson(std::string_view text, const std::string& source);

}  // namespace tokamak
