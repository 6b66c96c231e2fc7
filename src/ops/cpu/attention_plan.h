// How a step's attention is cut on the CPU: blocks of queries that share a KV head, and, where
// there are too few of those to feed the cores, splits of their keys.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ops/attention.h"
#include "ops/cpu/kernels.h"
#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// Tokens [first_token, first_token + num_tokens) of the batch, all of one sequence.
struct QueryBlock {
  int32_t sequence = 0;
  int64_t first_token = 0;
  int num_tokens = 0;
  int64_t first_position = 0;
  int64_t first_split = 0;  // the splits that any of its tokens sees
  int64_t end_split = 0;
  // Where its splits' partials lie (floats), and its counters; only when its splits run apart.
  int64_t partials = 0;
  int64_t counters = 0;
};

// One item per KV head: a block with all its splits, or one of them.
struct AttentionUnit {
  static constexpr int64_t kAllSplits = -1;
  int32_t block = 0;
  int64_t split = kAllSplits;
};

class CpuAttentionPlan final : public AttentionPlan {
 public:
  static Result<std::unique_ptr<CpuAttentionPlan>> Make(const AttentionShape& shape,
                                                        int num_threads);

  void Fill(const AttentionBatch& batch, Stream& stream) override;

  const AttentionShape& shape() const { return shape_; }
  // The blocks of the sequence that these queries belong to.
  const int32_t* TableOf(const QueryBlock& block) const;
  const std::vector<QueryBlock>& blocks() const { return blocks_; }
  const std::vector<AttentionUnit>& units() const { return units_; }
  int group() const { return shape_.num_heads / shape_.num_kv_heads; }
  int64_t max_rows() const { return static_cast<int64_t>(tokens_per_block_) * group(); }

  // Working memory of the layers that run the plan, one after the other.
  float* WorkerScratch(int worker) const;
  AttentionPartial WorkerPartial(int worker, int index, int64_t rows) const;  // index 0 or 1
  AttentionPartial SplitPartial(const QueryBlock& block, int kv_head, int64_t split) const;
  // True for the last split of a block and head to be done, which merges them.
  bool SplitDone(const QueryBlock& block, int kv_head) const;

 private:
  CpuAttentionPlan(const AttentionShape& shape, Buffer workers, Buffer partials,
                   int64_t partial_floats);

  void AddSequence(int32_t sequence);
  AttentionPartial PartialAt(float* memory, int64_t rows) const;
  int64_t worker_floats() const;

  const AttentionShape shape_;
  const int tokens_per_block_;
  AttentionBatch batch_;
  std::vector<QueryBlock> blocks_;
  std::vector<AttentionUnit> units_;
  Buffer workers_;
  Buffer partials_;
  const int64_t partial_floats_;                      // room in partials_
  std::unique_ptr<std::atomic<int32_t>[]> counters_;  // splits of [block][kv head] still to do
};

}  // namespace tokamak::cpu
