// How the CPU backend cuts a step's attention: into blocks of queries that share a KV head and, if
// those are too few for the cores, into splits of their keys.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ops/attention.h"
#include "ops/cpu/kernels.h"
#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak::cpu {

// The largest head_dim that StoreToken takes if value_dim is smaller.
inline constexpr int kMaxUnequalDim = 1024;

// Tokens [first_token, first_token + num_tokens) of the batch, all of one sequence.
struct QueryBlock {
  int32_t sequence = 0;
  int64_t first_token = 0;
  int num_tokens = 0;
  int64_t first_position = 0;
  int64_t num_keys = 0;     // keys that every query sees; 0: causal
  int64_t first_split = 0;  // [first_split, end_split): splits that any of its tokens sees
  int64_t end_split = 0;
  // Offsets of its splits' partials (in floats) and counters, if its splits are separate items.
  int64_t partials = 0;
  int64_t counters = 0;
};

// A work item per KV head: a block with all its splits, or one split.
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
  // The block table of the queries' sequence.
  const int32_t* TableOf(const QueryBlock& block) const;
  const std::vector<QueryBlock>& blocks() const { return blocks_; }
  const std::vector<AttentionUnit>& units() const { return units_; }
  // LatentAttention's blocks, each with all its splits.
  const std::vector<QueryBlock>& expanded() const { return expanded_; }
  int group() const { return shape_.num_heads / shape_.num_kv_heads; }
  int64_t max_rows() const { return static_cast<int64_t>(tokens_per_block_) * group(); }

  // Working memory, shared by the layers, which run one after another.
  float* WorkerScratch(int worker) const;
  AttentionPartial WorkerPartial(int worker, int index, int64_t rows) const;  // index 0 or 1
  AttentionPartial SplitPartial(const QueryBlock& block, int kv_head, int64_t split) const;
  // Call it when a split of a block and head is done. Returns true for the last one, whose caller
  // must then merge the splits.
  bool SplitDone(const QueryBlock& block, int kv_head) const;
  // The same memory for LatentAttention, for a block of `rows` tokens.
  struct Expanded {
    float* latents = nullptr;  // [kKeySplit, PadTo16(head_dim)]
    float* entries = nullptr;  // [kKeySplit, ExpandedDim]: decompressed keys and values
    float* scratch = nullptr;  // for attend_split
    AttentionPartial partial[2] = {};
  };
  Expanded WorkerExpanded(int worker, int64_t rows) const;
  // Elements of a decompressed key, and of key and value together.
  int64_t ExpandedKeyDim() const {
    return shape_.head_dim - shape_.ValueDim() + shape_.expansion.nope_dim;
  }
  int64_t ExpandedDim() const { return ExpandedKeyDim() + shape_.expansion.value_dim; }
  // A block table in which every block is block 0: [splits] zeros.
  const int32_t* AnyBlock() const { return zeros_.data(); }

 private:
  explicit CpuAttentionPlan(const AttentionShape& shape);

  void AddSequence(int32_t sequence);
  static AttentionPartial PartialAt(float* memory, int64_t rows, int64_t value_dim);
  AttentionPartial PartialAt(float* memory, int64_t rows) const {
    return PartialAt(memory, rows, shape_.ValueDim());
  }
  int64_t scratch_floats() const {
    return AttentionScratchFloats(max_rows(), shape_.head_dim, shape_.ValueDim());
  }
  int64_t partial_floats(int64_t rows) const {
    return AttentionPartialFloats(rows, shape_.ValueDim());
  }
  int64_t expanded_floats() const;
  int64_t worker_floats() const;

  const AttentionShape shape_;
  const int tokens_per_block_;
  AttentionBatch batch_;
  std::vector<QueryBlock> blocks_;
  std::vector<AttentionUnit> units_;
  std::vector<QueryBlock> expanded_;
  std::vector<int32_t> zeros_;
  Buffer workers_;
  Buffer partials_;
  int64_t partial_floats_ = 0;                        // room in partials_
  std::unique_ptr<std::atomic<int32_t>[]> counters_;  // splits of [block][kv head] still to do
};

}  // namespace tokamak::cpu
