// Paged attention: where keys and values lie, the batch as attention sees it, and its plan.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace tokamak {

// One layer's keys and values in the block pool. Block b starts at base + b * block_stride; inside
// it, at k_offset and v_offset, lie [num_kv_heads, block_size, head_dim] elements of `dtype`; a
// backend is free to order those of one KV head in its own way, in as many bytes. For block types
// head_dim is a whole number of blocks. Values may be of another size than keys, or a part of them:
// both are for backends with Ops::has_mla.
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
  // Values are the last value_dim elements of their keys, kept once, and v_offset is where those of
  // the first key begin. Keys are then rows on every backend.
  bool values_in_keys = false;

  int32_t ValueDim() const { return value_dim > 0 ? value_dim : head_dim; }
};

// The step's rows for one cache group. Sequence s owns the queries
// [query_start_loc[s], query_start_loc[s + 1]), which are the last positions of its seq_lens[s]
// keys; where attention is not causal, they must be all of them. A sequence of length 0 is padding:
// what its queries get is unspecified.
struct AttentionBatch {
  // On the host, to cut the work by.
  std::span<const int32_t> query_start_loc;  // [num_seqs + 1]
  std::span<const int32_t> seq_lens;         // [num_seqs]; keys up to and with the last query
  // The same in device memory, for kernels.
  Tensor device_query_start_loc;  // i32 [num_seqs + 1]
  Tensor device_seq_lens;         // i32 [num_seqs]
  // Where the blocks of sequence s are listed: row table_rows[s] of `block_tables`. In device
  // memory.
  Tensor table_rows;    // i32 [num_seqs]
  Tensor block_tables;  // i32 [rows, max_blocks_per_seq]; -1: no block, never read

  int32_t num_seqs() const { return static_cast<int32_t>(seq_lens.size()); }
};

// A sequence with at least `min_queries` new positions in a step is for LatentAttention, which
// decompresses its latents to keys and values of these sizes; the others are for Attention.
struct LatentExpansion {
  int32_t min_queries = 0;  // 0: none has enough
  int32_t nope_dim = 0;     // of a key without its rotated part
  int32_t value_dim = 0;

  bool Takes(int32_t num_queries) const { return min_queries > 0 && num_queries >= min_queries; }
  friend bool operator==(const LatentExpansion&, const LatentExpansion&) = default;
};

// What a group's layers have in common, fixed when the plan object is made.
struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;
  int32_t window = 0;  // keys that a query sees, its own included; 0: all
  // A query sees the keys up to its own position. False, without a window: all of its sequence, as
  // encoders want it. A backend without has_extras refuses that.
  bool causal = true;
  DType kv_dtype = DType::kF32;
  int32_t max_seqs = 0;
  int32_t max_tokens = 0;
  int32_t max_blocks_per_seq = 0;
  int32_t value_dim = 0;        // as in KvLayerView
  bool values_in_keys = false;  // as in KvLayerView
  // Which sequences of a latent group attend to decompressed keys (ops/mla.h).
  LatentExpansion expansion = {};

  int32_t ValueDim() const { return value_dim > 0 ? value_dim : head_dim; }
};

// How a backend cuts a step's attention into work; made once, filled once per step, read by every
// layer of the group. Cuts depend on absolute positions and shapes alone, so that a row's result is
// the same in any company.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  // Takes the batch in. Its spans must stay valid until the step's last Attention has been given to
  // the stream, its tensors until that has run.
  virtual void Fill(const AttentionBatch& batch, Stream& stream) = 0;
};

}  // namespace tokamak
