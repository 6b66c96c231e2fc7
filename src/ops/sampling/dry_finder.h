// Finds the tokens that DRY (dry.h) penalizes, on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling/dry.h"
#include "step/executor_limits.h"
#include "step/step_input.h"

namespace tokamak::sampling {

// The tokens that a draw looks at; 0: DRY is off.
inline int32_t DryWindow(const SamplingParams& params) {
  if (params.dry_multiplier == 0.0f) return 0;
  return params.dry_penalty_last_n < 0 ? kMaxRepeatLastN : params.dry_penalty_last_n;
}

// Sets `tokens` and `ends` to the breakers of several tokens, as in DryBreakers.
void FlattenDrySequences(const SamplingParams& params, std::vector<int32_t>* tokens,
                         std::vector<int32_t>* ends);

// A token that would go on with a repeat of `length` tokens, the longest one.
struct DryRepeat {
  TokenId token = 0;
  int32_t length = 0;
};

// Takes time in proportion to the window.
class DryFinder {
 public:
  void Reset(const SamplingParams& params);
  bool on() const { return window_ > 0; }
  // Sets `repeats` to the tokens whose logits are to be lowered, by ascending id, each once.
  void FindRepeats(std::span<const TokenId> history, std::vector<DryRepeat>* repeats) const;
  float Penalty(int32_t length) const {
    return DryPenalty(multiplier_, base_, length - allowed_length_);
  }

 private:
  float multiplier_ = 0, base_ = 1;
  int32_t allowed_length_ = 0, window_ = 0;
  std::vector<uint32_t> single_;
  std::vector<int32_t> tokens_, ends_;
};

}  // namespace tokamak::sampling
