// Paged attention: the layout of keys and values, the batch, and the plan of a step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace tokamak {

// One layer's keys and values in the block pool. Block b starts at base + b * block_stride and has
// [num_kv_heads, block_size, head_dim] elements of `dtype` at k_offset and at v_offset. A backend
// may reorder those of one KV head. For block types head_dim is a whole number of blocks. Values
// that differ in size from keys, or are part of them, require Capability::kMla.
struct KvLayerView {
  std::byte* base = nullptr;
  int64_t block_stride = 0;  // bytes; the same for all layers of the pool
  int64_t k_offset = 0;      // bytes from the start of a block
  int64_t v_offset = 0;
  DType dtype = DType::kF32;
  int32_t block_size = 0;  // positions per block
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_dim = 0;  // elements of a value; 0: head_dim
  // Values are not stored separately: each is the last value_dim elements of its key, and v_offset
  // is where the value of the first key begins. Keys are then rows on every backend.
  bool values_in_keys = false;

  constexpr int32_t ValueDim() const { return value_dim > 0 ? value_dim : head_dim; }
};

struct BatchRows {
  int64_t begin = 0, end = 0;
};

// The step's rows for one cache group. Sequence s owns the queries [query_start_loc[s],
// query_start_loc[s + 1]), which are the last positions of its seq_lens[s] keys (all of
// them if attention is not causal). A sequence of length 0 is padding; its results are unspecified.
struct AttentionBatch {
  // On the host, to cut the work.
  std::span<const int32_t> query_start_loc;  // [num_seqs + 1]
  std::span<const int32_t> seq_lens;         // [num_seqs]: keys, the last query's included
  // The same in device memory.
  Tensor device_query_start_loc;  // i32 [num_seqs + 1]
  Tensor device_seq_lens;         // i32 [num_seqs]
  // Row table_rows[s] of `block_tables` lists the blocks of sequence s. In device memory.
  Tensor table_rows;    // i32 [num_seqs]
  Tensor block_tables;  // i32 [rows, max_blocks_per_seq]; -1: no block, never read
  // Ranges of queries that see each other, in ascending order and each of one sequence: a query in
  // one sees the keys up to the range's last query. On the host. None unless the plan's shape says
  // that there may be some.
  std::span<const BatchRows> bidirectional = {};

  int32_t num_seqs() const { return static_cast<int32_t>(seq_lens.size()); }
};

// LatentAttention serves sequences with at least `min_queries` new positions in the step and
// decompresses their latents to these sizes; Attention serves the others.
struct LatentExpansion {
  int32_t min_queries = 0;  // 0: none
  int32_t nope_dim = 0;     // of a key, without its rotated part
  int32_t value_dim = 0;
  // Positions whose keys and values LatentAttention::scratch holds at once, a multiple of 256; 0:
  // there is no scratch.
  int32_t chunk_keys = 0;

  bool Takes(int32_t num_queries) const { return min_queries > 0 && num_queries >= min_queries; }
  friend bool operator==(const LatentExpansion&, const LatentExpansion&) = default;
};

// Common to a group's layers. Fixed when the plan is made.
struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;
  int32_t window = 0;  // keys that a query sees, its own included; 0: all
  // True: a query sees the keys up to its own position. False (encoders): it sees its whole
  // sequence; requires window 0 and Capability::kNonCausal.
  bool causal = true;
  DType kv_dtype = DType::kF32;
  // Batches may have ranges of queries that see each other (AttentionBatch::bidirectional).
  // Requires `causal`, which then holds for all other queries, and Capability::kNonCausal.
  bool bidirectional = false;
  int32_t max_seqs = 0;
  int32_t max_tokens = 0;
  int32_t max_blocks_per_seq = 0;
  int32_t value_dim = 0;        // as in KvLayerView
  bool values_in_keys = false;  // as in KvLayerView
  // See ops/mla.h.
  LatentExpansion expansion = {};

  int32_t ValueDim() const { return value_dim > 0 ? value_dim : head_dim; }
};

// Consecutive queries [begin, end) of one sequence, all of which see the keys before end_key; or,
// if that is 0, each those up to its own position.
struct QueryPart {
  int64_t begin = 0, end = 0;
  int32_t end_key = 0;
};

// Calls visit(part) for the parts of a sequence's queries, in order.
template <typename Visit>
void ForEachPart(const AttentionShape& shape, const AttentionBatch& batch, int32_t sequence,
                 Visit visit) {
  const auto s = static_cast<size_t>(sequence);
  const int64_t end = batch.query_start_loc[s + 1];
  int64_t begin = batch.query_start_loc[s];
  auto range = std::ranges::lower_bound(batch.bidirectional, begin, {}, &BatchRows::begin);
  while (begin < end) {
    const bool any = range != batch.bidirectional.end() && range->begin < end;
    const bool whole = !shape.causal || (any && range->begin == begin);
    const int64_t stop = !any || !shape.causal ? end : whole ? range++->end : range->begin;
    visit(QueryPart{begin, stop,
                    whole ? batch.seq_lens[s] - static_cast<int32_t>(end - stop) : int32_t{0}});
    begin = stop;
  }
}

// How a backend cuts a step's attention into work items. Made once, filled once per step, read by
// every layer of the group. Cuts depend only on absolute positions and shapes, so a row's result
// does not depend on other rows.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  // Sets the step's batch. Its spans must stay valid until the step's last Attention is submitted,
  // its tensors until that has run.
  virtual void Fill(const AttentionBatch& batch, Stream& stream) = 0;
  // The rows that Attention may serve, in a batch of num_rows: LatentAttention serves those before
  // and behind them. The last Fill decides.
  virtual BatchRows AttendedRows(int64_t num_rows) const { return {0, num_rows}; }
};

}  // namespace tokamak
