// One step between Submit and Wait: its packed batch and its results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ops/ops.h"
#include "runner/sequence_slots.h"

namespace tokamak {

// Limits that all steps in flight have in common.
struct StepShape {
  int32_t max_seqs = 0;
  int32_t max_tokens = 0;
  int32_t max_drafts = 0;
  int32_t max_blocks_per_seq = 0;
  int32_t num_groups = 0;
  int32_t max_updates = 0;  // block table entries per group and step: see MakeStepShape
  int32_t max_image_tokens = 0;
  int32_t rope_dimensions = 1;        // of positions in steps with images
  bool bidirectional_images = false;  // as in CacheLayout

  // A step for a graph has as many sequences as tokens (GraphRunner).
  int32_t MaxPaddedSeqs() const { return max_seqs + max_drafts; }
  int64_t StagingBytes() const;  // largest batch; its device copy is as large
  int64_t TableBytes() const;    // block tables of all groups
};

// Byte offsets of a packed batch's parts, equal in staging memory and on the device. All but the
// table updates depend only on the four counts, so batches of equal counts have equal addresses.
struct BatchLayout {
  int32_t num_tokens = 0;        // T, padding included
  int32_t num_seqs = 0;          // S, padding included
  int32_t num_logits = 0;        // R
  int32_t num_image_tokens = 0;  // K
  int32_t rope_dimensions = 0;   // D; 0 if all positions have one
  int64_t token_ids = 0;         // i32 [T]
  int64_t positions = 0;         // i32 [T]: as in nn::Pass
  int64_t logit_rows = 0;        // i32 [R]: first rows to draw from, then prompt positions to score
  int64_t query_start_loc = 0;   // i32 [S + 1]
  int64_t seq_lens = 0;          // i32 [S]
  int64_t table_rows = 0;        // i32 [S]: the sequences' slots
  int64_t slot_mapping = 0;      // i64 [T] per group: see SlotMappingOf
  int64_t image_from = 0;        // i32 [K]: as in nn::Pass
  int64_t image_to = 0;          // i32 [K]
  int64_t rope_positions = 0;    // i32 [D, T]: as in nn::Pass; only if D > 0
  int64_t token_indices = 0;     // i32 [T]: the same
  // Block table entries that the step sets: i32 indices, then i32 values.
  struct Updates {
    int64_t indices = 0;
    int64_t values = 0;
    int32_t count = 0;
  };
  std::vector<Updates> updates;  // per group
  int64_t bytes = 0;

  void SetCounts(int32_t tokens, int32_t seqs, int32_t logits, int32_t num_groups);
  // After SetCounts, which sets both to 0.
  void SetImageTokens(int32_t count, int32_t dimensions);
  void SetUpdates(int32_t group, int32_t count);  // in order of groups, after the others
  int64_t SlotMappingOf(int32_t group) const;
  bool no_updates() const;
};

// Memory of one step in flight, allocated once and reused. Vectors keep their capacity, so packing
// does not allocate in the steady state. The device may read them until `done` is reached.
struct StepInFlight {
  // A row of the step and its results.
  struct Row {
    SequenceSlotId slot = 0;
    int32_t sampled = -1;  // index into sampled_results of its first draw; -1: does not sample
    int32_t num_draws = 0;
    int32_t end = 0;  // the position behind its known tokens
    bool wants_logprobs = false;
    int32_t scored_begin = 0;  // range of scored_results
    int32_t scored_end = 0;
    int32_t prompt_top = 0;
    int32_t num_candidates = 0;      // wanted; the row's only draw then draws nothing
    int32_t num_proposals = 0;       // wanted
    std::vector<int32_t> proposals;  // indices into `proposed`; those behind kNotDrawn are none
  };

  uint64_t number = 0;
  std::vector<Row> rows;

  Buffer staging;  // pinned
  BatchLayout layout;
  bool decode = false;  // padded for GraphRunner
  std::vector<TokenFill> fills;
  std::vector<BatchRows> bidirectional;  // as in AttentionBatch

  std::vector<SampleRow> sample_rows;  // masked ones last
  std::vector<TokenId> drafts;         // of all sample_rows
  size_t num_unmasked = 0;             // of sample_rows
  size_t num_unmasked_draws = 0;       // of these
  size_t num_draws = 0;
  std::vector<TokenId> scored_tokens;
  std::vector<SampleResult> sampled_results;  // at least num_draws; its lists are reused
  std::vector<SampleResult> scored_results;
  std::vector<TokenMask> masks;
  // With several stages: i32, the tokens of sampled_results, as they are sent. A row whose health
  // is not kOk has none.
  Buffer sent_draws;
  std::vector<SampleResult> proposed;
  bool must_propose = false;     // proposals are wanted and not enqueued
  std::unique_ptr<Event> drawn;  // reached behind the last draw, if proposals are wanted
  double proposing_seconds = 0;  // unless the events below measure it
  std::unique_ptr<Event> proposing_begin, proposing_end;  // may be null
  // What the draws need, in the arena until the last one: the logits or the argmax.
  Tensor logits;
  std::optional<ArgmaxLogits> argmax;
  Buffer expert_offsets;  // pinned copy of nn::Pass::expert_offsets; empty if not wanted

  std::unique_ptr<Event> done;

  // Reserves room for any step, except for prompt logprobs.
  void Reserve(const StepShape& shape);

  std::span<const int32_t> Staged(int64_t offset, int32_t count) const {
    return {reinterpret_cast<const int32_t*>(staging.data() + offset), static_cast<size_t>(count)};
  }
};

// Writes the slots of positions [begin, begin + count) to `slot_mapping`.
void PackSlotMapping(std::span<const BlockId> table, int32_t block_size, int32_t begin,
                     int32_t count, int64_t* slot_mapping);

// Fills the rest of a batch that runs as a graph, behind `num_tokens` and `num_seqs`, but for its
// logit rows: sequences of length 0 that read and write no cache, the first ones with a token.
void PackPadding(const BatchLayout& layout, int32_t num_tokens, int32_t num_seqs,
                 std::byte* staging);

// Packs the rows of a step that has been applied to `slots`. Pads them to `padded_tokens` tokens
// and as many sequences, if that is not 0. The sequences of padding are empty; the first ones have
// a token each, the others none. Such a token has logits, and is not written to the cache. Includes
// the last max_updates table entries of each group; PackUpdates packs those before. Host work only.
void PackRows(std::span<const StepRow> rows, int32_t padded_tokens, const SequenceSlots& slots,
              const CacheSpec& cache, const StepShape& shape, StepInFlight* in_flight);

// Packs at most max_updates table entries of one group, and no rows.
void PackUpdates(int32_t group, std::span<const SequenceSlots::TableUpdate> updates,
                 const StepShape& shape, StepInFlight* in_flight);

}  // namespace tokamak
