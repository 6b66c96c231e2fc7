// Sampler: draws tokens from logits. Keeps each sequence's sampling parameters and token counts on
// the device, by slot, so that a step sends nothing but the rows.
//
// The draw is Gumbel-max over the tokens that survive the filters, keyed by (seed, choice,
// position, token id): it depends on nothing else, and every backend gives the same token for equal
// logits.
#pragma once

#include <cstdint>
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
};

// One row of logits to draw from.
struct SampleRow {
  SequenceSlotId slot = 0;
  int32_t position = 0;  // of the drawn token in its sequence: the prompt's first token has 0
};

// A token that the host does not know yet.
struct TokenFill {
  SequenceSlotId slot = 0;
  int32_t index = 0;  // into the step's token ids
};

// The largest logit of each row, and the lowest id that has it.
struct ArgmaxLogits {
  Tensor values;  // f32 [R]: NaN where the row has NaN or +Inf
  Tensor ids;     // i32 [R]; any where the value is NaN
};

// What came of a row.
struct SampleResult {
  RowHealth health = RowHealth::kOk;
  TokenId token = 0;          // 0 when the health is not kOk
  PositionLogprobs logprobs;  // when the slot asks for them
};

class Sampler {
 public:
  virtual ~Sampler() = default;

  // Gives a slot its parameters, in stream order: draws started earlier still use its old ones.
  // `tokens` is the history so far, its first `num_prompt` the prompt. All token ids have been
  // checked; `spec` and `tokens` need not outlive the call.
  virtual void Admit(SequenceSlotId slot, const SamplingSpec& spec, std::span<const TokenId> tokens,
                     int32_t num_prompt, Stream& stream) = 0;

  // token_ids[fill.index] = the token last drawn for fill.slot (i32 [T], on the device). This is
  // how a step's input gets a token that an earlier step, not waited for yet, draws.
  virtual void FillTokens(Tensor token_ids, std::span<const TokenFill> fills, Stream& stream) = 0;

  // Draws one token for each row of `logits` (f32 [rows.size(), vocab_size], overwritten),
  // restricted by the masks whose slot is among the rows. The drawn tokens enter their slots'
  // histories; a row whose health is not kOk draws token 0. All spans must stay valid until the
  // stream has reached this point; then `results` (as many as rows) is filled.
  virtual void Sample(Tensor logits, std::span<const SampleRow> rows,
                      std::span<const TokenMask> masks, std::span<SampleResult> results,
                      Stream& stream) = 0;

  // Whether the draw of a row without a mask is its largest logit, the lowest id of equal ones, and
  // no other logit matters: then SampleGreedy does what Sample does. Of the Admits so far.
  virtual bool IsGreedy(const SampleRow& /*row*/) const { return false; }
  // Spans as in Sample.
  virtual void SampleGreedy(const ArgmaxLogits& /*argmax*/, std::span<const SampleRow> /*rows*/,
                            std::span<SampleResult> /*results*/, Stream& /*stream*/) {
    CHECK_MSG(false, "no row is greedy");
  }

  // Logprobs of given tokens: results[i] is that of tokens[i] under row i of `logits` (f32
  // [tokens.size(), vocab_size]) with the `top` most likely alternatives. For prompt_logprobs.
  // Spans as in Sample.
  virtual void Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
                     std::span<SampleResult> results, Stream& stream) = 0;
};

}  // namespace tokamak
