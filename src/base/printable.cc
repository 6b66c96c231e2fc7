#include "base/printable.h"

#include <fmt/format.h>

namespace tokamak {
namespace {

// Length of the well-formed multi-byte UTF-8 sequence at the start of `text`, or 0.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Refuses overlong forms, surrogates, code points above U+10FFFF, and C1 control characters.
  if (lead == 0xc2 && byte(1) < 0xa0) return 0;
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

std::string Quoted(std::string_view text, size_t max_bytes) {
  std::string out = "\"";
  size_t i = 0;
  while (i < text.size()) {
    if (out.size() > max_bytes) {
      out += "...";
      break;
    }
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i++];
    } else if (c >= 0x20 && c < 0x7f) {
      out += text[i++];
    } else if (const size_t length = c < 0x80 ? 0 : Utf8Length(text.substr(i)); length > 0) {
      out += text.substr(i, length);
      i += length;
    } else {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : fmt::format("\\x{:02x}", c);
      ++i;
    }
  }
  return out + '"';
}

}  // namespace tokamak
