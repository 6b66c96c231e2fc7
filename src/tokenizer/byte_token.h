// SentencePiece's byte tokens: "<0x0A>".
#pragma once

#include <string_view>

namespace tokamak {

// Returns the byte, or -1 if `text` does not spell one.
inline int ParseByteToken(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace tokamak
