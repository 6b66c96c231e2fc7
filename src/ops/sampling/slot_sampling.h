// One sequence's sampling parameters and history, and their effect on the next token's logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/gumbel.h"
#include "ops/sampling/dry_finder.h"
#include "step/step_input.h"

namespace tokamak::sampling {

// Returns whether a token's occurrences in the history change its logit.
inline bool Penalizes(const SamplingParams& params) {
  return params.repeat_last_n != 0 &&
         (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
          params.frequency_penalty != 0.0f);
}

// Returns how many last tokens decide which bad words the next token completes.
inline int32_t HistoryForBadWords(const SamplingParams& params) {
  size_t longest = 1;
  for (const std::vector<TokenId>& word : params.bad_words_ids) {
    longest = std::max(longest, word.size());
  }
  return static_cast<int32_t>(longest - 1);
}

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
    return !params_.logit_bias.empty() || penalizes_ || dry_.on() || !allowed_.empty() ||
           !params_.bad_words_ids.empty() || ForbidsStop(position);
  }
  // Changes a row of raw logits for the token at `position`, in this order. x is a logit, c its
  // token's occurrences in the output:
  //   logit_bias          x + b, for each entry in turn
  //   repetition_penalty  x > 0 ? x / r : x · r, for tokens of prompt and output
  //   presence, frequency (x - p) - f · c, for tokens of the output
  //   dry_multiplier      x - DryPenalty, for tokens that go on with a repeat
  //   min_tokens          -Inf for stop_token_ids until that many tokens have been generated
  //   allowed_token_ids   -Inf for all others
  //   bad_words_ids       -Inf for the last token of each sequence whose others end the output
  // Penalties see the last repeat_last_n tokens of prompt and output, or all.
  // Finite logits stay finite (clamped to the largest float). `raw`, if not null, gets the changed
  // tokens with their original logits, but for those that allowed_token_ids or bad_words_ids
  // forbid.
  void Edit(int32_t position, std::span<float> row,
            std::vector<std::pair<TokenId, float>>* raw) const;

  void Append(TokenId token);
  // Calls `use` with these tokens in the history, which then leave it.
  template <typename Use>
  void WithTokens(std::span<const TokenId> tokens, Use use) {
    for (const TokenId token : tokens) Append(token);
    use();
    for (size_t i = tokens.size(); i > 0; --i) TakeBack(tokens[i - 1]);
  }

 private:
  struct Seen {
    TokenId token = 0;
    int32_t count = 0;         // in prompt and output, within the window
    int32_t output_count = 0;  // of these in the output
  };
  // Adds `change` (1 or -1) occurrences of a token.
  void Count(TokenId token, bool in_output, int32_t change);
  // Adds `change` to the count of the token that the last one has pushed out of the window.
  void CountPushedOut(int32_t change);
  void TakeBack(TokenId last);
  // Whether drawing the last token of a bad word would complete it.
  bool Completes(std::span<const TokenId> bad_word) const;
  bool ForbidsStop(int32_t position) const {
    return position - num_prompt_ < params_.min_tokens && !params_.stop_token_ids.empty();
  }

  SamplingParams params_;
  int32_t choice_ = 0;
  int32_t num_prompt_ = 0;
  bool penalizes_ = false;
  bool keeps_history_ = false;  // for a window of the penalties, for DRY or for bad words
  DryFinder dry_;
  std::vector<uint32_t> allowed_;  // bits of allowed_token_ids; empty: all
  std::vector<TokenId> history_;   // if keeps_history_
  std::vector<Seen> seen_;         // distinct tokens of the history, if any penalty is on
  std::unordered_map<TokenId, size_t> index_;  // into seen_
};

}  // namespace tokamak::sampling
