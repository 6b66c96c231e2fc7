// Replacing strings in text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tokamak {

// Replaces each `from` in `text` by `to`; an empty `from` replaces nothing. Once the result has
// more than `limit` bytes, it gets no more `to`.
inline void ReplaceAll(std::string& text, std::string_view from, std::string_view to,
                       size_t limit = SIZE_MAX) {
  size_t at = text.find(from);
  if (at == std::string::npos || from.empty()) return;
  if (text.find(from, at + from.size()) == std::string::npos && text.size() <= limit) {
    text.replace(at, from.size(), to);
    return;
  }
  std::string out;
  out.reserve(to.size() > from.size() ? text.size() + text.size() / 2 : text.size());
  size_t begin = 0;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin);
    if (out.size() <= limit) out += to;
    begin = at + from.size();
  }
  out.append(text, begin);
  text = std::move(out);
}

}  // namespace tokamak
