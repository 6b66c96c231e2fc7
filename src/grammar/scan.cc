#include "grammar/scan.h"

#include <algorithm>
#include <charconv>

namespace tokamak::grammar {

std::optional<uint32_t> ReadCount(std::string_view text, size_t& at) {
  const size_t start = at;
  uint32_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = std::min(value * 10 + static_cast<uint32_t>(text[at] - '0'), kMaxCount + 1);
  }
  return at > start ? std::optional(value) : std::nullopt;
}

std::optional<uint32_t> ReadHex(std::string_view text, size_t& at, size_t digits) {
  const std::string_view hex = text.substr(at, digits);
  const char* const last = hex.data() + hex.size();
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), last, value, 16);
  if (hex.size() < digits || error != std::errc() || end != last) return std::nullopt;
  at += digits;
  return value;
}

}  // namespace tokamak::grammar
