// Random draws that depend on nothing but their key: not on the schedule, the batch, the thread or
// the device.
#pragma once

#include <array>
#include <cstdint>

#include "base/exact_math.h"

namespace tokamak {

// Philox4x32-10: 128 random bits for a counter and a key. Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC11.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Identifies a draw: one per position of each choice of a request.
struct DrawKey {
  uint64_t seed = 0;
  int32_t choice = 0;
  int32_t position = 0;  // of the drawn token in its sequence
};

// Random words for token ids [4 · quad, 4 · quad + 4).
constexpr std::array<uint32_t, 4> DrawWords(const DrawKey& key, uint32_t quad) {
  return Philox4x32(
      {quad, static_cast<uint32_t>(key.position), static_cast<uint32_t>(key.choice), 0},
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

// A random word that decides about the draw as a whole. Independent of the draw's DrawWords.
constexpr uint32_t DecisionWord(const DrawKey& key) {
  return Philox4x32({0, static_cast<uint32_t>(key.position), static_cast<uint32_t>(key.choice), 1},
                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)})[0];
}

// A standard Gumbel variable, -ln(-ln(1 - v)), with uniform v = (word + ½) / 2³². Small v give the
// large values, so the upper tail, which decides draws, keeps 32 bits of resolution.
constexpr double Gumbel(uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -ExactLog(-ExactLog(1.0 - v));
}

// Upper bound of Gumbel(): 33 ln 2, rounded up.
inline constexpr double kMaxGumbel = 22.875;

}  // namespace tokamak
