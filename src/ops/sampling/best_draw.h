// The best draw so far, and which tokens need not be drawn. constexpr, for device code.
#pragma once

#include <cstdint>
#include <limits>

#include "base/gumbel.h"
#include "step/step_input.h"

namespace tokamak::sampling {

// The token with the largest y + Gumbel; of equal ones the lowest id.
struct BestDraw {
  double score = -std::numeric_limits<double>::infinity();
  TokenId token = 0;

  constexpr void Offer(double offered, TokenId id) {
    if (offered > score || (offered == score && id < token)) {
      score = offered;
      token = id;
    }
  }
  constexpr void Offer(float y, TokenId id, uint32_t word) {
    Offer(static_cast<double>(y) + Gumbel(word), id);
  }

  // A token with this y cannot win: it would need a Gumbel of at least its distance from the best
  // score, and none is above kMaxGumbel.
  constexpr bool IsOutOfReach(float y) const { return Distance(y) > kMaxGumbel; }
  // Returns k such that a token with this y cannot win if any of the top k bits of its random word
  // is set. So its Gumbel, two logarithms, need not be computed: with v >= 2^-k, -ln(1 - v) >= v >=
  // 2^-k, so the Gumbel is at most k · ln 2, which is below the distance by far more than rounding
  // errors.
  constexpr int BitsThatMustBeZero(float y) const {
    constexpr double kBelowLog2E = 1.4426;
    const double k = Distance(y) * kBelowLog2E - 0.01;
    return k <= 0 ? 0 : k >= 32 ? 32 : static_cast<int>(k);
  }
  static constexpr bool AnyOfTopBits(uint32_t word, int bits) {
    return bits != 0 && word >> (32 - bits) != 0;
  }

 private:
  constexpr double Distance(float y) const { return score - static_cast<double>(y); }
};

}  // namespace tokamak::sampling
