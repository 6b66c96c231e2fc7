#include "base/utf8.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tokamak {
namespace {

enum class Utf8State { kValid, kInvalid, kTruncated };

// The character at the start of a text that is not empty.
struct Utf8Unit {
  Utf8State state;
  size_t length;  // bytes of the character, or of its longest valid prefix (at least 1)
};

// Well-formed byte sequences: The Unicode Standard, table 3-7.
Utf8Unit ReadUnit(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {Utf8State::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8State::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte has a special range: it excludes overlong forms, surrogates and code
  // points above U+10FFFF.
  uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8State::kTruncated, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < low || byte > high) return {Utf8State::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8State::kValid, length};
}

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

size_t SkipAscii(std::string_view text, size_t offset) {
  while (offset + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + offset, sizeof word);
    if (word & 0x8080808080808080u) break;
    offset += 8;
  }
  while (offset < text.size() && static_cast<uint8_t>(text[offset]) < 0x80) ++offset;
  return offset;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t offset = SkipAscii(text, 0);
  while (offset < text.size()) {
    const Utf8Unit unit = ReadUnit(text.substr(offset));
    if (unit.state != Utf8State::kValid) break;
    offset = SkipAscii(text, offset + unit.length);
  }
  return offset;
}

void AppendValidUtf8(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return;
    out.append(kReplacementUtf8);
    text.remove_prefix(ReadUnit(text).length);
  }
}

std::string ToValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  AppendValidUtf8(text, out);
  return out;
}

uint32_t NextCodePoint(std::string_view text, size_t& offset) {
  DCHECK(offset < text.size());
  const size_t begin = offset;
  const auto lead = static_cast<uint8_t>(text[begin]);
  offset = std::min(begin + Utf8Length(text[begin]), text.size());
  // Zero beyond the end.
  const auto bits = [&](size_t i) -> uint32_t {
    return begin + i < text.size() ? static_cast<uint8_t>(text[begin + i]) & 0x3F : 0;
  };
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return (lead & 0x1Fu) << 6 | bits(1);
  if (lead < 0xF0) return (lead & 0x0Fu) << 12 | bits(1) << 6 | bits(2);
  return (lead & 0x07u) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
}

size_t PreviousCodePoint(std::string_view text, size_t offset) {
  do {
    --offset;
  } while (offset > 0 && IsContinuation(text[offset]));
  return offset;
}

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); });
}

size_t OffsetOf(std::string_view text, int64_t count) {
  size_t offset = 0;
  for (; offset < text.size(); ++offset) {
    if (!IsContinuation(text[offset]) && count-- == 0) break;
  }
  return offset;
}

void AppendCodePoint(uint32_t code_point, std::string& out) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

void Utf8StreamDecoder::Append(std::string_view bytes, std::string& out) {
  if (bytes.empty()) return;
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined.append(bytes);
    bytes = joined;
    pending_.clear();
  }
  while (!bytes.empty()) {
    const size_t valid = ValidUtf8Prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const Utf8Unit unit = ReadUnit(bytes);
    if (unit.state == Utf8State::kTruncated) {
      pending_.assign(bytes);
      return;
    }
    out.append(kReplacementUtf8);
    bytes.remove_prefix(unit.length);
  }
}

void Utf8StreamDecoder::Flush(std::string& out) {
  if (!pending_.empty()) out.append(kReplacementUtf8);
  pending_.clear();
}

}  // namespace tokamak
