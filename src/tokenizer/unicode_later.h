// Characters of Unicode 16 that are missing from PCRE2's tables (Unicode 14 in PCRE2 10.42).
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// Returns these characters of a general category ("L", "Nd") as members of a PCRE2 class:
// "\\x{1E5F1}-\\x{1E5FA}...".
std::string LaterCharacters(std::string_view category);

}  // namespace tokamak
