#include "tokenizer/charsmap.h"

#include "base/error.h"
#include "base/utf8.h"

namespace tokamak {
namespace {

// A unit of the double array: bits 0-7 and 31 are the label, bit 8 says whether a value follows,
// the rest is the offset of the children. Value units have bit 31 set.
constexpr bool HasValue(uint32_t unit) { return (unit >> 8) & 1; }
constexpr uint32_t Label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
constexpr uint32_t Value(uint32_t unit) { return unit & ~(1u << 31); }
constexpr uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

uint32_t ReadLittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

Result<CharsMap> CharsMap::Create(std::string_view blob) {
  CharsMap map;
  if (blob.empty()) return map;
  if (blob.size() < 4) return InvalidArgument("the charsmap has {} bytes", blob.size());
  const uint32_t trie_bytes = ReadLittleEndian(blob);
  blob.remove_prefix(4);
  if (trie_bytes > blob.size() || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return InvalidArgument("the charsmap's trie should have {} bytes, but {} bytes are left",
                           trie_bytes, blob.size());
  }
  for (size_t i = 0; i < trie_bytes; i += 4) {
    map.units_.push_back(ReadLittleEndian(blob.substr(i)));
  }
  map.replacements_ = blob.substr(trie_bytes);
  if (map.replacements_.empty() || map.replacements_.back() != '\0') {
    return InvalidArgument("the charsmap's replacements do not end with a zero byte");
  }
  if (ValidUtf8Prefix(map.replacements_) != map.replacements_.size()) {
    return InvalidArgument("the charsmap's replacements are not valid UTF-8");
  }
  return map;
}

CharsMap::Rule CharsMap::Find(std::string_view text, bool shortest) const {
  Rule best;
  if (units_.empty()) return best;
  // Checks every index, because the trie comes from a file.
  uint32_t node = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasValue(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t at = Value(units_[node]);
    if (at >= replacements_.size()) break;
    // A rule for part of a character, or with a replacement that starts inside one, is malformed.
    const auto starts_inside = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; };
    if (i + 1 < text.size() && starts_inside(text[i + 1])) continue;
    if (starts_inside(replacements_[at])) continue;
    const size_t end = replacements_.find('\0', at);
    best = {i + 1, std::string_view(replacements_).substr(at, end - at)};
    if (shortest) break;
  }
  return best;
}

}  // namespace tokamak
