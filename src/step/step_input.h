// StepInput: what the engine asks of a runner in one forward pass. A plain value, so that a step
// can go to another process unchanged.
//
// Steps take effect in the order of their numbers, so a block that a step reads or writes may be
// given another use by the rows of any later one. Copies are stricter: see CopyBlock.
//
// It is a delta on the state that the runner keeps per sequence slot: token history, number of
// computed positions, block tables, sampling parameters. The runner derives positions, slot mapping
// and input tokens from that state. The parts take effect in this order:
//   free → copies → admit → append → rows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "step/cache_spec.h"

namespace tokamak {

using TokenId = int32_t;
using SequenceSlotId = int32_t;  // index of a sequence's state in the runner, in [0, max_seqs)

// How to choose a sequence's next token. Ranges have been validated. See SamplingParams
// (include/tokamak/sampling_params.h) for the meaning of each field.
struct SamplingSpec {
  float temperature = 1.0f;  // 0 is greedy
  int32_t top_k = 0;         // 0 is off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  uint64_t seed = 0;       // with choice, position and token id, the key of every draw
  int32_t choice = 0;      // which of the request's n continuations
  int32_t min_tokens = 0;  // stop_ids cannot be drawn before this many generated tokens
  std::vector<TokenId> stop_ids = {};
  int32_t top_logprobs = -1;  // alternatives to report per generated token; -1 is none at all
  int32_t prompt_top_logprobs = -1;  // the same for prompt tokens

  friend bool operator==(const SamplingSpec&, const SamplingSpec&) = default;
};

// Gives a free slot a sequence. A sequence resumed after a preemption brings the tokens that it had
// generated; draws are keyed by position, so it continues as if nothing had happened.
struct AdmitSequence {
  SequenceSlotId slot = 0;
  std::vector<TokenId> tokens = {};  // prompt, then tokens generated so far
  int32_t num_prompt_tokens = 0;
  int32_t num_computed =
      0;  // positions whose cache entries are in the blocks already; < tokens.size()
  SamplingSpec sampling = {};

  friend bool operator==(const AdmitSequence&, const AdmitSequence&) = default;
};

// Extends a slot's block table in one group. Tables only grow; entry i holds the positions
// [i * block_size, (i + 1) * block_size). kNoBlock stands for positions that a window group has
// dropped or never had.
inline constexpr BlockId kNoBlock = -1;
struct AppendBlocks {
  SequenceSlotId slot = 0;
  int32_t group = 0;
  std::vector<BlockId> blocks = {};

  friend bool operator==(const AppendBlocks&, const AppendBlocks&) = default;
};

enum class Tier : uint8_t { kDevice, kHost };

// Copies one whole block, all layers: copy-on-write inside the device tier, swap between tiers.
// The copies of a step take effect in the order of their list: a block that is swapped out may be
// the destination of a later copy, and the last copy into a block counts. No step in flight uses a
// block that a copy writes, or writes one that it reads, so copies need not wait for those steps.
struct CopyBlock {
  Tier source_tier = Tier::kDevice;
  BlockId source = 0;
  Tier destination_tier = Tier::kDevice;
  BlockId destination = 0;

  friend bool operator==(const CopyBlock&, const CopyBlock&) = default;
};

// A sequence's share of the batch: the next `num_tokens` positions after those computed. All but
// the last may be known tokens only; the last may be the one that an earlier step in flight
// samples, which need not be known to the engine yet. A row is never longer than the tokens so
// known.
struct StepRow {
  SequenceSlotId slot = 0;
  int32_t num_tokens = 0;  // 1 for decode, many for prefill or extend
  bool sample = false;     // draw the token that follows the last of these positions

  friend bool operator==(const StepRow&, const StepRow&) = default;
};

struct StepInput {
  uint64_t number = 0;  // consecutive; a gap is an error
  std::vector<SequenceSlotId> free = {};
  std::vector<CopyBlock> copies = {};
  std::vector<AdmitSequence> admit = {};
  std::vector<AppendBlocks> append = {};
  std::vector<StepRow> rows = {};  // at most one per slot

  friend bool operator==(const StepInput&, const StepInput&) = default;
};

// Which tokens a row may draw, given after the step was submitted (grammars compute it while the
// forward pass runs). Rows without a mask may draw any.
struct TokenMask {
  SequenceSlotId slot = 0;
  std::vector<uint32_t> allowed = {};  // bit t % 32 of word t / 32 stands for token t

  friend bool operator==(const TokenMask&, const TokenMask&) = default;
};

}  // namespace tokamak
