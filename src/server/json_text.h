// JSON values as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tokamak {

// In one line. Strings that are not UTF-8 are repaired (U+FFFD), never refused.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace tokamak
