// Text from a file as it may appear in a message: never longer than a line, never control bytes.
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// `text` in double quotes: bytes that are not printable ASCII become \xNN (well-formed UTF-8 is
// kept), and what exceeds `max_bytes` becomes "...".
std::string Quoted(std::string_view text, size_t max_bytes = 100);

}  // namespace tokamak
