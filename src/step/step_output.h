// StepOutput: what a step produced. A plain value, like StepInput.
#pragma once

#include <cstdint>
#include <vector>

#include "step/step_input.h"
#include "tokamak/request.h"

namespace tokamak {

enum class RowHealth : uint8_t {
  kOk,
  kNotFinite,    // this row's logits contain NaN or +Inf, or are all -Inf
  kNoCandidate,  // mask, bias and min_tokens leave no token to draw
};

struct RowOutput {
  SequenceSlotId slot = 0;
  RowHealth health = RowHealth::kOk;
  std::vector<TokenId> tokens;          // drawn: none, one, or one more than the accepted drafts
  std::vector<TokenLogprobs> logprobs;  // one per drawn token, if asked for
  // If asked for: the logprob of the prompt token at p + 1 for each position p of this row, as long
  // as that is a prompt token.
  std::vector<TokenLogprobs> prompt_logprobs;
  // Drafts for the sequence's next row, at most StepRow::num_proposals: tokens that the draft model
  // expects behind the last of `tokens`.
  std::vector<TokenId> proposals = {};
  // The best StepRow::num_candidates next tokens, best first, equal ones by lower id. Their
  // logprobs are those of the model's own distribution, changed by the sampling parameters that
  // change logits (SamplingParams): the order of transformers' beam search. Tokens without
  // probability are left out.
  std::vector<TokenLogprobs::Entry> candidates = {};

  friend bool operator==(const RowOutput&, const RowOutput&) = default;
};

struct StepOutput {
  uint64_t number = 0;
  std::vector<RowOutput> rows = {};  // in the order of StepInput::rows
  // Tokens of the step routed to each expert: [MoE layers, experts], layers in the model's order.
  // Empty if not asked for. CUDA graphs count their padding rows too.
  std::vector<int32_t> expert_loads = {};
  // How long the draft model took for the step's proposals, without prompts.
  double proposing_seconds = 0;

  // Loads and times are statistics, which a replay need not reproduce.
  friend bool operator==(const StepOutput& a, const StepOutput& b) {
    return a.number == b.number && a.rows == b.rows;
  }
};

}  // namespace tokamak
