// DRY (Don't Repeat Yourself) as in llama.cpp. If the last n tokens also stand elsewhere among the
// last dry_penalty_last_n ones, the token that followed them there would repeat n + 1 tokens, and
// its logit is lowered. No repeat goes back across a sequence breaker. constexpr, for device code.
//
// token(i) gives the token i places before the last one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/exact_math.h"
#include "step/step_input.h"

namespace tokamak::sampling {

// The largest exponent of dry_base.
inline constexpr int32_t kMaxDryExponent = 1024;

// The texts that no repeat goes across, as tokens.
struct DryBreakers {
  const uint32_t* single;  // bits of the tokens that contain one
  int32_t num_words;
  // Longer breakers, sorted by their first tokens. The tokens of sequence i end before ends[i].
  const int32_t* tokens;
  const int32_t* ends;
  int32_t num_sequences;

  constexpr bool IsSingle(TokenId id) const {
    return id / 32 < num_words && (single[id / 32] >> (id % 32) & 1) != 0;
  }
  constexpr int32_t Begin(int32_t i) const { return i == 0 ? 0 : ends[i - 1]; }
};

// Returns how many tokens follow token(i) in the longest breaker that begins with it; -1: none
// does.
template <typename Token>
constexpr int32_t BreakerAt(const DryBreakers& breakers, int32_t i, Token token) {
  const TokenId first = token(i);
  int32_t longest = breakers.IsSingle(first) ? 0 : -1;
  int32_t low = 0, high = breakers.num_sequences;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (breakers.tokens[breakers.Begin(middle)] < first) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; low < breakers.num_sequences; ++low) {
    const int32_t begin = breakers.Begin(low), following = breakers.ends[low] - begin - 1;
    if (breakers.tokens[begin] != first) break;
    if (following <= longest || following > i) continue;
    int32_t same = 0;
    while (same < following && breakers.tokens[begin + 1 + same] == token(i - 1 - same)) ++same;
    if (same == following) longest = following;
  }
  return longest;
}

// Returns the longest repeat that counts: longer ones have no greater penalty. llama.cpp's
// exponents end where a float would overflow, and at kMaxDryExponent here, which bounds the work.
constexpr int32_t LongestDryMatch(float base, int32_t allowed_length) {
  constexpr float kNoGrowth = 1.000001f;
  constexpr double kLogOfMax = 88.7228391;  // of floats
  double exponent = kMaxDryExponent;
  if (base > kNoGrowth) exponent = std::min(exponent, kLogOfMax / ExactLog(double{base}));
  return allowed_length + static_cast<int32_t>(exponent);
}

// Returns how many of the last tokens also end k places before the last one: at most `limit`, and
// within `window` tokens.
template <typename Token>
constexpr int32_t DryMatch(int32_t k, int32_t window, int32_t limit, Token token) {
  int32_t length = 0;
  while (length < limit && length + k < window && token(length) == token(length + k)) ++length;
  return length;
}

// Returns multiplier · base ^ exponent, at most the largest float.
constexpr float DryPenalty(float multiplier, float base, int32_t exponent) {
  double power = 1, square = double{base};
  for (; exponent > 0; exponent /= 2, square *= square) {
    if (exponent % 2 != 0) power *= square;
  }
  constexpr double kMost = double{std::numeric_limits<float>::max()};
  return static_cast<float>(std::min(double{multiplier} * power, kMost));
}

}  // namespace tokamak::sampling
