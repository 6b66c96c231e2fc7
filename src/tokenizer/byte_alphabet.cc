#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace tokamak {
namespace {

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr uint32_t kEnd = 0x100 + 68;  // 68 bytes do not stand for themselves

struct Alphabet {
  std::array<uint16_t, 256> code_point{};
  std::array<int16_t, kEnd> byte{};  // by code point; -1: not in the alphabet

  constexpr Alphabet() {
    for (auto& b : byte) b = -1;
    uint16_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      code_point[b] = StandsForItself(b) ? static_cast<uint16_t>(b) : next++;
      byte[code_point[b]] = static_cast<int16_t>(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

bool DecodeByteAlphabet(std::string_view spelling, std::string& bytes) {
  bytes.clear();
  for (size_t offset = 0; offset < spelling.size();) {
    const uint32_t code_point = NextCodePoint(spelling, offset);
    if (code_point >= kEnd || kAlphabet.byte[code_point] < 0) return false;
    bytes.push_back(static_cast<char>(kAlphabet.byte[code_point]));
  }
  return true;
}

std::string EncodeByteAlphabet(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(2 * bytes.size());
  for (const char b : bytes)
    AppendCodePoint(kAlphabet.code_point[static_cast<uint8_t>(b)], spelling);
  return spelling;
}

}  // namespace tokamak
