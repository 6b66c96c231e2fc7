// Characters that Unicode 16 has and PCRE2's tables, of Unicode 14 in version 10.42, do not know.
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// Those of a general category ("L", "Nd"), as members of a PCRE2 class: "\\x{1E5F1}-\\x{1E5FA}...".
std::string LaterCharacters(std::string_view category);

}  // namespace tokamak
