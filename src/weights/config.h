// A model's configuration as a JSON value: config.json, or a translation to it from another format.
// Families read it through ConfigReader (weights/config_reader.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json/json_value.h"
#include "tokamak/status.h"

namespace tokamak {

// Far beyond any real configuration.
inline constexpr size_t kMaxConfigBytes = size_t{16} << 20;

// Parses JSON text whose outermost value is an object. Refuses malformed, too deeply nested and too
// large text, duplicate names in an object, and numbers that are not finite. `source` names the
// text in messages.
Result<JsonValue> ParseConfigJson(std::string_view text, const std::string& source,
                                  size_t max_bytes = kMaxConfigBytes);
// The same for the text of a file.
Result<JsonValue> ReadConfigFile(const std::string& path);

}  // namespace tokamak
