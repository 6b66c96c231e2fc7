// Replacing strings in text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tokamak {

// Returns `text` with each `from` replaced by `to`; an empty `from` replaces nothing. Once the
// result has more than `limit` bytes, it gets no more `to`.
inline std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to,
                              size_t limit = SIZE_MAX) {
  size_t at = from.empty() ? std::string_view::npos : text.find(from);
  std::string out;
  if (at != std::string_view::npos) out.reserve(text.size() + text.size() / 2);
  while (at != std::string_view::npos) {
    out += text.substr(0, at);
    if (out.size() <= limit) out += to;
    text.remove_prefix(at + from.size());
    at = text.find(from);
  }
  out += text;
  return out;
}

}  // namespace tokamak
