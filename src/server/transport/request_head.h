// The rules for the bytes of a request's head.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tokamak {

inline constexpr char kBodyTooLarge[] =
    "the body is larger than this server accepts (--max-body-bytes)";

// Control characters other than tab, which no line may hold.
constexpr bool IsControl(char c) {
  return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f;
}

// Returns what is wrong with a request line (without its CRLF), or "".
std::string RequestLineError(std::string_view line);

// Returns what is wrong with the name of a field (a line without its CRLF), or "".
std::string FieldNameError(std::string_view line);

// How a head says where its body ends.
struct HeadFraming {
  std::string error;  // empty: nothing is wrong
  bool chunked = false;
  bool has_length = false;
  size_t length = 0;
};
// Checks a whole head: the request line and the fields, each line with its CRLF, and an empty line.
// Requires lines without control characters.
HeadFraming CheckHead(std::string_view head, size_t max_headers);

}  // namespace tokamak
