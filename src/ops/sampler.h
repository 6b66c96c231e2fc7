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

#include "step/step_input.h"
#include "step/step_output.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace tokamak {

struct SamplerShape {
  int32_t max_slots = 0;
  int32_t max_rows = 0;  // rows of logits in one call
  int32_t vocab_size = 0;
};

// One row of logits to draw from.
struct SampleRow {
  SlotId slot = 0;
  int32_t position = 0;  // of the drawn token in its sequence: the prompt's first token has 0
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

  // Gives a slot its parameters; `tokens` is the history so far, its first `num_prompt` the prompt.
  virtual void Admit(SlotId slot, const SamplingSpec& spec, std::span<const TokenId> tokens,
                     int32_t num_prompt) = 0;

  // Draws one token for each row of `logits` (f32 [rows.size(), vocab_size], overwritten),
  // restricted by the masks whose slot is among the rows. The drawn tokens enter their slots'
  // histories. `results` (as many as rows) is filled when the stream has reached this point; on
  // return from Ops::Synchronize it may be read.
  virtual void Sample(Tensor logits, std::span<const SampleRow> rows,
                      std::span<const TokenMask> masks, std::span<SampleResult> results,
                      Stream& stream) = 0;

  // Logprobs of given tokens: results[i] is that of tokens[i] under row i of `logits` (f32
  // [tokens.size(), vocab_size]) with the `top` most likely alternatives. For prompt_logprobs.
  virtual void Score(Tensor logits, std::span<const TokenId> tokens, int32_t top,
                     std::span<SampleResult> results, Stream& stream) = 0;
};

}  // namespace tokamak
