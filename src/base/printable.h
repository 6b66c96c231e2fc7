// Makes text from a file safe for messages: at most a line, no control bytes.
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

// `text` in double quotes. Well-formed UTF-8 is kept, other non-printable bytes become \xNN, and
// whatever exceeds `max_bytes` becomes "...".
std::string Quoted(std::string_view text, size_t max_bytes = 100);

}  // namespace tokamak
