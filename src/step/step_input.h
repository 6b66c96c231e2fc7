// StepInput: what the engine asks of a runner in one forward pass. A plain value, so that it can be
// sent to another process unchanged.
//
// Steps take effect in the order of their numbers, so rows of a later step may reuse a block that
// an earlier step reads or writes. Copies are stricter: see CopyBlock.
//
// It is a delta on the state that the runner keeps per sequence slot: token history, number of
// computed positions, block tables, sampling parameters. The runner derives positions, slot mapping
// and input tokens from that state. The parts take effect in this order:
//   free → copies → forget → encode → admit → fork → append → rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "step/cache_spec.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

using TokenId = int32_t;
using SequenceSlotId = int32_t;  // index of a sequence's state in the runner, in [0, max_seqs)

// Names an image by its pixels and how it was prepared. 0 names none.
using ImageId = uint64_t;

// Has the model's image encoder compute the rows of an image that the encoder cache does not have.
// They stay there until the image is forgotten.
struct EncodeImage {
  ImageId id = 0;
  std::vector<int32_t> shape = {};  // of the values
  int32_t grid_height = 0, grid_width = 0;
  int32_t image_height = 0, image_width = 0;  // in pixels, before it was prepared
  int32_t num_rows = 0;                       // at least one
  std::vector<float> values = {};             // as the image processor prepared them

  friend bool operator==(const EncodeImage&, const EncodeImage&) = default;
};

// Positions of a prompt that show an image: `num_rows` of its rows, from `first_row` on, take the
// place of the embeddings of the placeholder tokens from `position` on.
struct ImageSpan {
  int32_t position = 0;
  ImageId image = 0;
  int32_t first_row = 0;
  int32_t num_rows = 0;
  // With mRoPE (arXiv:2409.12191, section 2.1): the rows are a grid with so many columns, row by
  // row, and all rows of the image. Their positions have three dimensions, and all later positions
  // are counted as if the image had only as many tokens as the grid's longer side. 0: as of texts.
  int32_t grid_width = 0;

  int32_t end() const { return position + num_rows; }
  friend bool operator==(const ImageSpan&, const ImageSpan&) = default;
};

// Assigns a sequence to a free slot. A sequence that resumes after a preemption brings the tokens
// it had generated; draws are keyed by position, so its tokens stay the same.
struct AdmitSequence {
  SequenceSlotId slot = 0;
  std::vector<TokenId> tokens = {};  // prompt, then tokens generated so far
  int32_t num_prompt_tokens = 0;
  int32_t num_computed = 0;  // positions already in the blocks; < tokens.size()
  // The request's parameters as far as they decide what is drawn. The seed is set. stop_token_ids
  // has all ids that end the generation, the model's own too. It is empty if min_tokens is 0,
  // because then any of them may be drawn. prompt_logprobs is absent once they are known.
  SamplingParams sampling = {};
  int32_t choice = 0;  // index among the request's n continuations
  // Uses the long RoPE factors although it has not more tokens than CacheSpec::original_context,
  // because its forks will.
  bool long_rope = false;
  // In the prompt, in order. When a row computes a position of one, the encoder cache has the
  // image.
  std::vector<ImageSpan> images = {};

  friend bool operator==(const AdmitSequence&, const AdmitSequence&) = default;
};

// Gives a slot the history of another one and `tokens` behind it, which the engine chose (beam
// search). The source has computed all of its tokens; none of them was drawn in its slot. It keeps
// its sampling parameters, which the slot gets too. The slot is free and gets an empty block table,
// or it is the source itself, which then keeps its table. Forks take effect in list order, so a
// source goes on itself after its other forks.
struct ForkSequence {
  SequenceSlotId slot = 0;
  SequenceSlotId source = 0;
  std::vector<TokenId> tokens = {};  // at least one

  friend bool operator==(const ForkSequence&, const ForkSequence&) = default;
};

// Extends a slot's block table in one group. Tables only grow. Entry i holds the block_size
// positions from i * block_size on, or is kNoBlock where a window group needs none.
inline constexpr BlockId kNoBlock = -1;
struct AppendBlocks {
  SequenceSlotId slot = 0;
  int32_t group = 0;
  std::vector<BlockId> blocks = {};

  friend bool operator==(const AppendBlocks&, const AppendBlocks&) = default;
};

enum class Tier : uint8_t { kDevice, kHost };

// Copies one whole block, all layers: copy-on-write within the device tier, swap between tiers. The
// copies of a step take effect in list order: a block that is swapped out may be the destination of
// a later copy, and the last copy into a block wins. No step in flight uses a block that a copy
// writes, or writes a block that a copy reads, so copies need not wait for those steps.
struct CopyBlock {
  Tier source_tier = Tier::kDevice;
  BlockId source = 0;
  Tier destination_tier = Tier::kDevice;
  BlockId destination = 0;

  friend bool operator==(const CopyBlock&, const CopyBlock&) = default;
};

// A sequence's part of the batch: its next `num_tokens` positions. Their tokens are known, except
// that the last may still have to be sampled by an earlier step in flight.
//
// A row with drafts verifies them (speculative decoding). Its last positions hold the drafts, and
// it draws after each of them, too, as long as each draw equals the next draft. What was drawn is
// the same as without drafts. The slot then has the positions before the last drawn token. No row
// of it is submitted before that step has been waited for. If it is masked, each draw has a mask.
struct StepRow {
  SequenceSlotId slot = 0;
  int32_t num_tokens = 0;  // 1 for decode, many for prefill or extend; with the drafts
  bool sample = false;     // draw the token after the last of these positions
  // If it samples or returns candidates: waits for its masks, so is drawn after the others.
  bool masked = false;
  std::vector<TokenId> drafts = {};  // only if it samples
  // If it samples: so many drafts for the sequence's next row are wanted from the runner, which has
  // a draft model. The sequence has blocks for as many positions behind the row. No row of it is
  // submitted before that step has been waited for.
  int32_t num_proposals = 0;
  // If above 0, the row draws nothing and returns so many tokens that could follow, the best ones
  // (RowOutput::candidates). It covers all known tokens, and the slot knows no more than them until
  // it is forked.
  int32_t num_candidates = 0;

  friend bool operator==(const StepRow&, const StepRow&) = default;
};

struct StepInput {
  uint64_t number = 0;  // consecutive; a gap is an error
  std::vector<SequenceSlotId> free = {};
  std::vector<CopyBlock> copies = {};
  std::vector<ImageId> forget = {};  // the encoder cache drops these
  std::vector<EncodeImage> encode = {};
  std::vector<AdmitSequence> admit = {};
  std::vector<ForkSequence> fork = {};
  std::vector<AppendBlocks> append = {};
  std::vector<StepRow> rows = {};  // at most one per slot

  // Whether rows of it wait for masks.
  bool HasMaskedRows() const {
    return std::any_of(rows.begin(), rows.end(), [](const StepRow& row) { return row.masked; });
  }
  friend bool operator==(const StepInput&, const StepInput&) = default;
};

// The tokens that one draw of a masked row may draw. Given after the step was submitted, because
// grammars compute masks while the forward pass runs.
struct TokenMask {
  SequenceSlotId slot = 0;
  int32_t draw = 0;  // 0: after the row's known tokens, i: after its first i drafts
  std::vector<uint32_t> allowed = {};  // bit t % 32 of word t / 32 is token t

  friend bool operator==(const TokenMask&, const TokenMask&) = default;
};

}  // namespace tokamak
