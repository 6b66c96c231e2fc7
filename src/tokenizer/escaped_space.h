// SentencePiece's spelling of a space: ▁ (U+2581).
#pragma once

#include <string>
#include <string_view>

namespace tokamak {

inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";

// Appends `text` to `out`, spaces as ▁.
inline void AppendEscapedSpaces(std::string_view text, std::string& out) {
  out.reserve(out.size() + text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      out.append(kEscapedSpace);
    } else {
      out.push_back(c);
    }
  }
}

// Returns `text` with ▁ as spaces.
inline std::string UnescapeSpaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t at = text.find(kEscapedSpace);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) break;
    out.push_back(' ');
    text.remove_prefix(at + kEscapedSpace.size());
  }
  return out;
}

}  // namespace tokamak
