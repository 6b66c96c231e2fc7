#include "base/base64.h"

#include <array>
#include <cstdint>

namespace tokamak {
namespace {

constexpr std::array<int8_t, 256> MakeValues() {
  std::array<int8_t, 256> values{};
  for (auto& value : values) value = -1;
  const std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < digits.size(); ++i) {
    values[static_cast<uint8_t>(digits[i])] = static_cast<int8_t>(i);
  }
  return values;
}
constexpr std::array<int8_t, 256> kValues = MakeValues();

// Decodes digits without padding. Sets `unused` to the last bits, which are part of no byte.
bool DecodeDigits(std::string_view digits, std::string& bytes, uint32_t& unused) {
  if (digits.size() % 4 == 1) return false;
  bytes.clear();
  bytes.reserve(digits.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : digits) {
    const int8_t value = kValues[static_cast<uint8_t>(c)];
    if (value < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  unused = bits & ((1u << count) - 1);
  return true;
}

std::string_view WithoutPadding(std::string_view text) {
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  return text;
}

}  // namespace

bool DecodeBase64(std::string_view text, std::string& bytes) {
  const std::string_view digits = WithoutPadding(text);
  if (digits.size() != text.size() && text.size() % 4 != 0) return false;
  uint32_t unused = 0;
  return DecodeDigits(digits, bytes, unused);
}

bool DecodeStrictBase64(std::string_view text, std::string& bytes) {
  uint32_t unused = 0;
  return text.size() % 4 == 0 && DecodeDigits(WithoutPadding(text), bytes, unused) && unused == 0;
}

}  // namespace tokamak
