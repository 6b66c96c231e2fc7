#include "base/gumbel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tokamak {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with the generator (Random123, kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DrawWords, DependOnEveryPartOfTheKey) {
  const DrawKey key{.seed = 0x0123456789abcdef, .choice = 2, .position = 77};
  const Words words = DrawWords(key, 5);
  EXPECT_EQ(words, Philox4x32({5, 77, 2, 0}, {0x89abcdef, 0x01234567}));
  EXPECT_NE(words, DrawWords({.seed = key.seed + 1, .choice = 2, .position = 77}, 5));
  EXPECT_NE(words, DrawWords({.seed = key.seed ^ (1ull << 63), .choice = 2, .position = 77}, 5));
  EXPECT_NE(words, DrawWords({.seed = key.seed, .choice = 3, .position = 77}, 5));
  EXPECT_NE(words, DrawWords({.seed = key.seed, .choice = 2, .position = 78}, 5));
  EXPECT_NE(words, DrawWords(key, 6));
}

TEST(Gumbel, HasTheseBits) {
  EXPECT_EQ(Gumbel(0), 0x1.6dfb516f1cbbfp+4);
  EXPECT_EQ(Gumbel(0x80000000u), 0x1.774f29b81168p-2);
  EXPECT_EQ(Gumbel(~0u), -0x1.90a3aa15a0b5dp+1);
}

TEST(Gumbel, FallsWithTheWordAndStaysBelowItsBound) {
  EXPECT_LT(Gumbel(0), kMaxGumbel);
  double last = kMaxGumbel;
  for (uint64_t word = 0; word < (uint64_t{1} << 32); word = word * 5 / 4 + 1) {
    const double value = Gumbel(static_cast<uint32_t>(word));
    EXPECT_LT(value, last) << word;
    last = value;
  }
}

// Kolmogorov-Smirnov test: over consecutive positions, choices, seeds and tokens, e^-e^-g is
// uniform. The bound 1.95 / sqrt(n) has p = 0.001.
TEST(Gumbel, IsUniformUnderItsDistributionAlongEveryPartOfTheKey) {
  constexpr int kDraws = 100'000;
  for (int part = 0; part < 4; ++part) {
    std::vector<double> uniform;
    for (int i = 0; i < kDraws; ++i) {
      DrawKey key{.seed = 42, .choice = 0, .position = 1};
      uint32_t token = 3;
      if (part == 0) key.seed = static_cast<uint64_t>(i);
      if (part == 1) key.choice = i;
      if (part == 2) key.position = i;
      if (part == 3) token = static_cast<uint32_t>(i);
      uniform.push_back(std::exp(-std::exp(-Gumbel(DrawWords(key, token / 4)[token % 4]))));
    }
    std::sort(uniform.begin(), uniform.end());
    double distance = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double u = uniform[static_cast<size_t>(i)];
      distance = std::max(
          {distance, u - static_cast<double>(i) / kDraws, static_cast<double>(i + 1) / kDraws - u});
    }
    EXPECT_LT(distance, 1.95 / std::sqrt(kDraws)) << "part " << part;
  }
}

// Pairs of neighbouring tokens, and of neighbouring positions, fill a 16 × 16 grid evenly:
// chi-squared with 255 degrees of freedom; 330 has p = 0.001.
TEST(Gumbel, NeighboursAreIndependent) {
  constexpr int kDraws = 200'000;
  for (int part = 0; part < 2; ++part) {
    std::vector<int> cells(256, 0);
    for (int i = 0; i < kDraws; ++i) {
      const DrawKey key{.seed = 7, .choice = 0, .position = i};
      const DrawKey next{.seed = 7, .choice = 0, .position = i + 1};
      const uint32_t a = DrawWords(key, 0)[0];
      const uint32_t b = part == 0 ? DrawWords(key, 0)[1] : DrawWords(next, 0)[0];
      ++cells[(a >> 28) * 16 + (b >> 28)];
    }
    double chi_squared = 0;
    for (const int cell : cells) {
      const double expected = kDraws / 256.0;
      chi_squared += (cell - expected) * (cell - expected) / expected;
    }
    EXPECT_LT(chi_squared, 330) << "part " << part;
  }
}

}  // namespace
}  // namespace tokamak
