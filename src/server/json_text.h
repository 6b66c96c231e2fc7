// JSON values as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tokamak {

// Writes JSON on one line. Replaces bytes that are not UTF-8 by U+FFFD.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace tokamak
