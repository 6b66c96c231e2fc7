// The formats of JSON Schema, as regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tokamak::grammar {

// An anchored pattern. Absent if the format is not supported.
std::optional<std::string> FormatPattern(std::string_view format);
// Whether draft 2020-12 defines the format; validators ignore all others.
bool IsStandardFormat(std::string_view format);

}  // namespace tokamak::grammar
