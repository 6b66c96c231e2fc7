#pragma once

#include <string>
#include <string_view>

namespace tokamak {

std::string_view Version();  // "0.1.0"
std::string_view Commit();   // "1a2b3c4d5e6f", with "-dirty" if files were modified; or "unknown"
std::string VersionText();   // "tokamak 0.1.0 (1a2b3c4d5e6f)"

}  // namespace tokamak
