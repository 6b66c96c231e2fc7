// StepOutput: what a step produced. A plain value, like StepInput.
#pragma once

#include <cstdint>
#include <vector>

#include "step/step_input.h"

namespace tokamak {

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural logarithm

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

// The logprob of a token at one position, under the model's distribution before any sampling
// parameter (log-softmax of the raw logits).
struct PositionLogprobs {
  TokenLogprob token;             // the token at that position
  std::vector<TokenLogprob> top;  // the most likely ones, best first; ties by lower id

  friend bool operator==(const PositionLogprobs&, const PositionLogprobs&) = default;
};

enum class RowHealth : uint8_t {
  kOk,
  kNotFinite,    // NaN or +Inf in this row's logits, or all of them -Inf: it cannot go on
  kNoCandidate,  // mask, bias and min_tokens leave no token to draw
};

struct RowOutput {
  SequenceSlotId slot = 0;
  RowHealth health = RowHealth::kOk;
  std::vector<TokenId> tokens;  // drawn: none, one, or several when speculation accepts more
  std::vector<PositionLogprobs> logprobs;  // one per drawn token, if asked for
  // If asked for: for each position p of this row, the logprob of the prompt token at p + 1, as far
  // as there is one.
  std::vector<PositionLogprobs> prompt_logprobs;

  friend bool operator==(const RowOutput&, const RowOutput&) = default;
};

struct StepOutput {
  uint64_t number = 0;
  std::vector<RowOutput> rows = {};  // in the order of StepInput::rows
  // How many of the step's tokens went to each expert: [MoE layers, experts], the model's layers
  // first to last. Empty where nobody asked for it. Graphs count their padding.
  std::vector<int32_t> expert_loads = {};

  // Loads are for those who watch: a replay need not repeat them.
  friend bool operator==(const StepOutput& a, const StepOutput& b) {
    return a.number == b.number && a.rows == b.rows;
  }
};

}  // namespace tokamak
