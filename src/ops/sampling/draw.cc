// Few tokens can win: once a score stands, the others need a Gumbel of at least its distance from
// their y, and words that are too large for that are dropped before any logarithm.
#include "ops/sampling/draw.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ops/sampling/logits_row.h"

namespace tokamak::sampling {
namespace {

// Tokens whose word has one of its top k bits set cannot reach a score that is `distance` above
// their y. With v >= 2^-k, -ln(1 - v) >= v >= 2^-k, so their Gumbel is at most k · ln 2, and k is
// chosen to keep that below `distance` by a margin that dwarfs rounding.
int BitsThatMustBeZero(double distance) {
  constexpr double kBelowLog2E = 1.4426;
  const double k = distance * kBelowLog2E - 0.01;
  return k <= 0 ? 0 : std::min(static_cast<int>(k), 32);
}

bool AnyOfTopBits(uint32_t word, int bits) { return bits != 0 && word >> (32 - bits) != 0; }

// The best score so far.
struct Best {
  double score = -std::numeric_limits<double>::infinity();
  TokenId token = 0;

  double DistanceFrom(float y) const { return score - static_cast<double>(y); }
  void Offer(float y, TokenId id, uint32_t word) {
    const double offered = static_cast<double>(y) + Gumbel(word);
    if (offered > score || (offered == score && id < token)) {
      score = offered;
      token = id;
    }
  }
};

}  // namespace

TokenId DrawFromRow(std::span<const float> tempered, const DrawKey& key) {
  Best best;
  const TokenId first = FirstOf(tempered, 0.0f);
  best.Offer(0.0f, first, DrawWords(key, static_cast<uint32_t>(first) / 4)[first % 4]);
  const size_t whole = tempered.size() / 4 * 4;
  for (size_t begin = 0; begin < whole; begin += 4) {
    const float* y = tempered.data() + begin;
    const float largest = std::max(std::max(y[0], y[1]), std::max(y[2], y[3]));
    const double distance = best.DistanceFrom(largest);
    if (distance > kMaxGumbel) continue;
    const int zero_bits = BitsThatMustBeZero(distance);
    const std::array<uint32_t, 4> words = DrawWords(key, static_cast<uint32_t>(begin / 4));
    for (size_t j = 0; j < 4; ++j) {
      if (AnyOfTopBits(words[j], zero_bits)) continue;
      best.Offer(y[j], static_cast<TokenId>(begin + j), words[j]);
    }
  }
  for (size_t t = whole; t < tempered.size(); ++t) {
    best.Offer(tempered[t], static_cast<TokenId>(t),
               DrawWords(key, static_cast<uint32_t>(t / 4))[t % 4]);
  }
  return best.token;
}

TokenId DrawFromCandidates(std::span<const Candidate> candidates, const DrawKey& key) {
  Best best;
  uint32_t quad = ~uint32_t{0};  // whose words these are; no token's
  std::array<uint32_t, 4> words{};
  for (const Candidate& c : candidates) {
    const double distance = best.DistanceFrom(c.y);
    if (distance > kMaxGumbel) continue;
    const auto id = static_cast<uint32_t>(c.id);
    if (id / 4 != quad) words = DrawWords(key, quad = id / 4);
    if (AnyOfTopBits(words[id % 4], BitsThatMustBeZero(distance))) continue;
    best.Offer(c.y, c.id, words[id % 4]);
  }
  return best.token;
}

}  // namespace tokamak::sampling
