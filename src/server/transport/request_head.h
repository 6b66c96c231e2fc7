// The rules for a request's head, on its bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tokamak {

inline constexpr char kBodyTooLarge[] =
    "the body is larger than this server accepts (--max-body-bytes)";

// Other than tab; a line may hold none.
constexpr bool IsControl(char c) {
  return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f;
}

// Whether `a` is `lower`, which has no capitals: names of fields, and many values, have no case.
bool SameName(std::string_view a, std::string_view lower);

// What is wrong with a request line (without its CRLF), or "".
std::string RequestLineError(std::string_view line);

// What is wrong with the name of a field (a line without its CRLF), or "".
std::string FieldNameError(std::string_view line);

// What a head says, as far as its framing goes.
struct HeadFraming {
  std::string error;  // what is wrong; empty: nothing
  bool chunked = false;
  bool has_length = false;
  size_t length = 0;
};
// Of a whole head: the request line and the fields, each line with its CRLF, and an empty line.
// Lines are taken to be free of control characters.
HeadFraming CheckHead(std::string_view head, size_t max_headers);

}  // namespace tokamak
