// One sequence's sampling parameters and history, and their effect on the next token's logits.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/gumbel.h"
#include "step/step_input.h"

namespace tokamak::sampling {

class SlotSampling {
 public:
  // `tokens` is the history so far; its first `num_prompt` tokens are the prompt.
  void Reset(const SamplingParams& params, int32_t choice, std::span<const TokenId> tokens,
             int32_t num_prompt);

  const SamplingParams& params() const { return params_; }
  // The key of draws at `position`.
  DrawKey KeyAt(int32_t position) const {
    return {.seed = params_.seed.value_or(0), .choice = choice_, .position = position};
  }

  // Returns whether Edit changes anything at this position.
  bool Edits(int32_t position) const {
    return !params_.logit_bias.empty() || penalizes_ || ForbidsStop(position);
  }
  // Changes a row of raw logits for the token at `position`, in this order. x is a logit, c its
  // token's occurrences in the output:
  //   logit_bias          x + b, for each entry in turn
  //   repetition_penalty  x > 0 ? x / r : x · r, for tokens of prompt and output
  //   presence, frequency (x - p) - f · c, for tokens of the output
  //   min_tokens          -Inf for stop_token_ids until that many tokens have been generated
  // Finite logits stay finite (clamped to the largest float). `raw`, if not null, gets the changed
  // tokens with their original logits.
  void Edit(int32_t position, std::span<float> row,
            std::vector<std::pair<TokenId, float>>* raw) const;

  void Append(TokenId token);
  // Calls `use` with these tokens in the history, which then leave it.
  template <typename Use>
  void WithTokens(std::span<const TokenId> tokens, Use use) {
    const size_t num_seen = seen_.size();
    for (const TokenId token : tokens) Append(token);
    use();
    if (penalizes_) Forget(tokens, num_seen);
  }

 private:
  struct Seen {
    TokenId token = 0;
    int32_t output_count = 0;
  };
  void Count(TokenId token, int32_t output_count);
  // Takes back the last Appends, before which there were `num_seen` distinct tokens.
  void Forget(std::span<const TokenId> tokens, size_t num_seen);
  bool ForbidsStop(int32_t position) const {
    return position - num_prompt_ < params_.min_tokens && !params_.stop_token_ids.empty();
  }

  SamplingParams params_;
  int32_t choice_ = 0;
  int32_t num_prompt_ = 0;
  bool penalizes_ = false;
  std::vector<Seen> seen_;  // distinct tokens of the history, if any penalty is on
  std::unordered_map<TokenId, size_t> index_;  // into seen_
};

}  // namespace tokamak::sampling
