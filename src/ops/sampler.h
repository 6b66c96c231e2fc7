// Draws tokens from logits. Keeps each sequence's sampling parameters and token counts on the
// device, by sequence slot, so that a step sends only its rows.
//
// A draw is Gumbel-max over the tokens that survive the filters. It depends only on the logits and
// on (seed, choice, position, token id), so every backend draws the same token from equal logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "step/step_input.h"
#include "step/step_output.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace tokamak {

struct SamplerShape {
  int32_t max_seqs = 0;
  int32_t max_rows = 0;  // rows of logits in one call
  int32_t vocab_size = 0;
  // For benchmarks: a draw is its draft with this probability, whatever the logits say, and
  // otherwise another token (EngineOptions::synthetic_acceptance).
  std::optional<float> synthetic_acceptance = {};
  int32_t max_proposals = 0;  // of a slot, one after another; 0: no draft model
};

// Rows of logits of one slot to draw from: one, and one more for each draft. Each draws the token
// after the one before. Those behind a draw that differs from its draft are not drawn, and neither
// are those from the second on whose health is not kOk.
struct SampleRow {
  SequenceSlotId slot = 0;
  int32_t position = 0;  // of the first token, behind the slot's history
  std::span<const TokenId> drafts = {};
  // If above 0 (without drafts), nothing is drawn: the result has the best candidates instead, as
  // RowOutput describes them. Only if the sampler has_candidates().
  int32_t num_candidates = 0;

  int32_t num_draws() const { return static_cast<int32_t>(drafts.size()) + 1; }
};

// A token that the host does not know yet.
struct TokenFill {
  SequenceSlotId slot = 0;
  int32_t index = 0;  // into the step's token ids
};

// Each row's largest logit and the lowest id that has it.
struct ArgmaxLogits {
  Tensor values;  // f32 [R]: NaN where the row has NaN or +Inf
  Tensor ids;     // i32 [R]; unspecified if the value is NaN
};

inline constexpr TokenId kNotDrawn = -1;

// The result of one row of logits.
struct SampleResult {
  RowHealth health = RowHealth::kOk;
  TokenId token = 0;            // 0 unless health is kOk; or kNotDrawn
  TokenLogprobs logprobs = {};  // if the slot asks for them
  std::vector<TokenLogprobs::Entry> candidates = {};
};

// A row of a draft model's logits.
struct ProposalRow {
  SequenceSlotId slot = 0;
  int32_t position = 0;  // of the proposed token in its sequence
};

class Sampler {
 public:
  virtual ~Sampler() = default;

  // Gives a slot its parameters, in stream order: draws submitted earlier use the old ones.
  // `tokens` is the history so far, its first `num_prompt` the prompt. Token ids have been checked.
  // `params` (see AdmitSequence) and `tokens` need not outlive the call.
  virtual void Admit(SequenceSlotId slot, const SamplingParams& params, int32_t choice,
                     std::span<const TokenId> tokens, int32_t num_prompt, Stream& stream) = 0;

  // token_ids[fill.index] = the token last drawn for fill.slot (i32 [T], on the device): how a
  // step's input gets tokens of steps still in flight.
  virtual void FillTokens(Tensor token_ids, std::span<const TokenFill> fills, Stream& stream) = 0;

  // Draws a token for each row of `logits` (f32 [results.size(), vocab_size], overwritten) into
  // `results`, which are as many as the rows' draws, in their order. A mask restricts one draw of
  // its slot. Drawn tokens join their slots' histories; a row whose health is not kOk gets token 0.
  // Spans must stay valid until the stream has reached this point; `results` is complete then.
  virtual void Sample(Tensor logits, std::span<const SampleRow> rows,
                      std::span<const TokenMask> masks, std::span<SampleResult> results,
                      Stream& stream) = 0;

  // Whether rows may ask for candidates (SampleRow).
  virtual bool has_candidates() const { return false; }

  // Returns whether SampleGreedy may replace Sample for this row if it has no mask: its draw is the
  // largest logit, of equal ones the lowest id, and no other logit matters. Considers all Admits so
  // far.
  virtual bool IsGreedy(const SampleRow& /*row*/) const { return false; }
  // Spans as in Sample.
  virtual void SampleGreedy(const ArgmaxLogits& /*argmax*/, std::span<const SampleRow> /*rows*/,
                            std::span<SampleResult> /*results*/, Stream& /*stream*/) {
    CHECK_MSG(false, "no row samples greedily");
  }

  // Proposes a token for each row of `logits` (f32 [rows.size(), the draft model's vocabulary],
  // overwritten): the one that Sample would draw from them if the slot's proposals 0 to number - 1
  // had been drawn. It becomes proposal `number` of its slot. kNotDrawn if there is none, if its
  // logprob, from before penalties and filters, is below `least_logprob`, or behind such a
  // proposal. Changes nothing else of a slot. The rows' slots differ. Only the token of a result
  // counts. Spans as in Sample.
  virtual void Propose(Tensor /*logits*/, std::span<const ProposalRow> /*rows*/, int32_t /*number*/,
                       double /*least_logprob*/, std::span<SampleResult> /*results*/,
                       Stream& /*stream*/) {
    CHECK_MSG(false, "this sampler draws from no draft model");
  }
  // token_ids[fill.index] = proposal `number` of fill.slot, or 0 if that is kNotDrawn.
  virtual void FillProposals(Tensor /*token_ids*/, std::span<const TokenFill> /*fills*/,
                             int32_t /*number*/, Stream& /*stream*/) {
    CHECK_MSG(false, "this sampler draws from no draft model");
  }

  // Logprobs of given tokens, for prompt_logprobs: results[i] has that of tokens[i] under row i of
  // `logits` (f32 [tokens.size(), vocab_size]) and the `top` most likely alternatives. Spans as in
  // Sample.
  virtual void Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
                     std::span<SampleResult> results, Stream& stream) = 0;
};

}  // namespace tokamak
