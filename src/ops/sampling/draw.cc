#include "ops/sampling/draw.h"

#include <algorithm>
#include <array>

#include "ops/sampling/best_draw.h"
#include "ops/sampling/logits_row.h"

namespace tokamak::sampling {

TokenId DrawFromRow(std::span<const float> tempered, const DrawKey& key) {
  BestDraw best;
  const TokenId first = FirstOf(tempered, 0.0f);
  best.Offer(0.0f, first, DrawWords(key, static_cast<uint32_t>(first) / 4)[first % 4]);
  const size_t whole = tempered.size() / 4 * 4;
  for (size_t begin = 0; begin < whole; begin += 4) {
    const float* y = tempered.data() + begin;
    const float largest = std::max(std::max(y[0], y[1]), std::max(y[2], y[3]));
    if (best.IsOutOfReach(largest)) continue;
    const int zero_bits = best.BitsThatMustBeZero(largest);
    const std::array<uint32_t, 4> words = DrawWords(key, static_cast<uint32_t>(begin / 4));
    for (size_t j = 0; j < 4; ++j) {
      if (BestDraw::AnyOfTopBits(words[j], zero_bits)) continue;
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
  BestDraw best;
  uint32_t quad = ~uint32_t{0};  // `words` is for ids with id / 4 == quad; none yet
  std::array<uint32_t, 4> words{};
  for (const Candidate& c : candidates) {
    if (best.IsOutOfReach(c.y)) continue;
    const auto id = static_cast<uint32_t>(c.id);
    if (id / 4 != quad) words = DrawWords(key, quad = id / 4);
    if (BestDraw::AnyOfTopBits(words[id % 4], best.BitsThatMustBeZero(c.y))) continue;
    best.Offer(c.y, c.id, words[id % 4]);
  }
  return best.token;
}

}  // namespace tokamak::sampling
