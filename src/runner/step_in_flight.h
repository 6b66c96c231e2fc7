// One step between Submit and Wait: its packed batch and what comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ops/ops.h"
#include "runner/sequence_slots.h"

namespace tokamak {

// What all steps in flight have in common.
struct StepShape {
  int32_t max_seqs = 0;
  int32_t max_tokens = 0;
  int32_t max_blocks_per_seq = 0;
  int32_t num_groups = 0;
  int32_t max_updates = 0;  // entries of block tables, per group: see MakeStepShape

  int64_t StagingBytes() const;  // of the largest batch; also of its device copy
  int64_t TableBytes() const;    // of the block tables of all groups
};

// Where the parts of a packed batch lie, in bytes from its start: the same in staging memory and on
// the device. All but the table updates depend on the three counts alone, so that batches of equal
// counts have equal addresses.
struct BatchLayout {
  int32_t num_tokens = 0;       // T, padding included
  int32_t num_seqs = 0;         // S, padding included
  int32_t num_logits = 0;       // R
  int64_t token_ids = 0;        // i32 [T]
  int64_t positions = 0;        // i32 [T]: as in nn::Pass
  int64_t logit_rows = 0;       // i32 [R]: first rows to draw from, then prompt positions to score
  int64_t query_start_loc = 0;  // i32 [S + 1]
  int64_t seq_lens = 0;         // i32 [S]
  int64_t table_rows = 0;       // i32 [S]: the sequences' slots
  int64_t slot_mapping = 0;     // i64 [T] for each group: see SlotMappingOf
  // Entries of the block tables that the step sets: i32 indices, then i32 values.
  struct Updates {
    int64_t indices = 0;
    int64_t values = 0;
    int32_t count = 0;
  };
  std::vector<Updates> updates;  // per group
  int64_t bytes = 0;

  void SetCounts(int32_t tokens, int32_t seqs, int32_t logits, int32_t num_groups);
  void SetUpdates(int32_t group, int32_t count);  // group after group, after SetCounts
  int64_t SlotMappingOf(int32_t group) const;
  bool no_updates() const;
};

// Memory for one step in flight, made once and reused. The vectors keep their capacity, so that
// packing allocates nothing in the steady state. Device work reads them until `done` is reached.
struct StepInFlight {
  // A row of the step, and which of its results it gets.
  struct Row {
    SequenceSlotId slot = 0;
    int32_t sampled = -1;  // index into sampled_results, -1: does not sample
    bool wants_logprobs = false;
    int32_t scored_begin = 0;  // range of scored_results
    int32_t scored_end = 0;
    int32_t prompt_top = 0;
  };

  uint64_t number = 0;
  std::vector<Row> rows;

  Buffer staging;  // pinned
  BatchLayout layout;
  bool decode = false;  // GraphRunner runs it
  std::vector<TokenFill> fills;

  std::vector<SampleRow> sample_rows;
  std::vector<TokenId> scored_tokens;
  std::vector<SampleResult> sampled_results;  // at least as many; their lists are used again
  std::vector<SampleResult> scored_results;
  std::vector<TokenMask> masks;
  // Of sample_rows, in the arena from Submit to Sample: the logits, or the largest of each row and
  // what the rest could still be made of.
  Tensor logits;
  std::optional<ArgmaxLogits> argmax;
  Tensor hidden;
  Buffer expert_offsets;  // pinned: what nn::Pass::expert_offsets held; none unless wanted

  std::unique_ptr<Event> done;

  // Makes room for any step, so that none allocates. What prompt logprobs need comes with them.
  void Reserve(const StepShape& shape);

  std::span<const int32_t> Staged(int64_t offset, int32_t count) const {
    return {reinterpret_cast<const int32_t*>(staging.data() + offset), static_cast<size_t>(count)};
  }
};

// Fills a step in flight from the rows of a step, whose effect on `slots` has been applied, and
// pads it to `padded_rows` rows, where that is more: one token each, of an empty sequence, with
// logits, and written nowhere. Of the entries that the step adds to a group's tables these are the
// last max_updates; PackUpdates is for those before. Host work only.
void PackRows(std::span<const StepRow> rows, int32_t padded_rows, const SequenceSlots& slots,
              const CacheSpec& cache, const StepShape& shape, StepInFlight* in_flight);

// Fills a step in flight with nothing but entries of a group's tables, max_updates at most.
void PackUpdates(int32_t group, std::span<const SequenceSlots::TableUpdate> updates,
                 const StepShape& shape, StepInFlight* in_flight);

}  // namespace tokamak
