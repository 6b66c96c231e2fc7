// One step between Submit and Wait: its packed batch and what comes back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/pass.h"
#include "ops/ops.h"
#include "runner/slot_table.h"

namespace tokamak {

// Memory for one step in flight, made once and reused. The vectors keep their capacity, so that
// packing allocates nothing in the steady state. Device work reads them until `done` is reached.
struct Flight {
  // A row of the step, and which of its results it gets.
  struct Row {
    SlotId slot = 0;
    int32_t sampled = -1;  // index into sampled_results, -1: does not sample
    bool wants_logprobs = false;
    int32_t scored_begin = 0;  // range of scored_results
    int32_t scored_end = 0;
    int32_t prompt_top = 0;
  };

  uint64_t number = 0;
  std::vector<Row> rows;

  // The batch as attention sees it.
  std::vector<int32_t> query_begin;
  std::vector<int32_t> kv_length;
  std::vector<std::vector<BlockId>> tables;           // per group: [num_seqs, table_stride]
  std::vector<std::unique_ptr<AttentionPlan>> plans;  // per group
  std::vector<TokenFill> fills;

  // Uploaded at once: token ids, positions, logit rows (i32) and slots per group (i64).
  Buffer staging;
  Buffer device;
  std::vector<nn::PassGroup> groups;
  int32_t num_tokens = 0;

  // Rows of logits: first those to draw from, then prompt positions to score.
  std::vector<SampleRow> sample_rows;
  std::vector<TokenId> scored_tokens;
  std::vector<SampleResult> sampled_results;
  std::vector<SampleResult> scored_results;
  std::vector<TokenMask> masks;
  Tensor logits;  // of sample_rows; in the arena from Submit to Sample

  std::unique_ptr<Event> done;
};

// What all flights have in common.
struct FlightShape {
  int32_t max_slots = 0;
  int32_t max_tokens = 0;
  int32_t max_blocks_per_seq = 0;
  int32_t num_groups = 0;

  int64_t SectionBytes() const;  // of one i32 per token, aligned
  int64_t StagingBytes() const;  // also of the device copy
};

// Fills a flight from the rows of a step, whose effect on `slots` has been applied. Host work only.
void PackRows(std::span<const StepRow> rows, const SlotTable& slots, const CacheSpec& cache,
              const FlightShape& shape, Flight* flight);

// Views of the uploaded batch, in device memory.
struct DeviceBatch {
  Tensor token_ids;   // i32 [T]
  Tensor positions;   // i32 [T]
  Tensor logit_rows;  // i32 [R]
};
// Also sets flight->groups.
DeviceBatch ViewDeviceBatch(const FlightShape& shape, Flight* flight);

}  // namespace tokamak
