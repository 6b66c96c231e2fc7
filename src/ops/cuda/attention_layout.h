// How a step's attention is cut into work, as the plan writes it and the kernel reads it.
//
// The queries of a sequence that read the same KV head are rows: row r is token r / group and head
// r % group of the group. A tile is up to kTileRows of them; a wide one, for prefills, is up to
// kWideRows, or for latents kWideLatentRows. Keys are cut at absolute positions into splits of
// kSplitKeys; a row's splits are computed one by one, each starting from zero sums, and merged in
// ascending order. Which CTA computes them, and how rows are put into tiles, changes no bit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/attention.h"
#include "ops/cuda/limits.h"

namespace tokamak::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kWideRows = 128;
inline constexpr int kWideLatentRows = 64;
inline constexpr int kSplitKeys = 256;

// One CTA's work, for each KV head.
struct AttentionUnit {
  int32_t first_token;     // the sequence's first token in the batch
  int32_t first_position;  // position of that token in the sequence
  // Every row sees the keys up to this one, wherever it is itself (QueryPart::end_key - 1); 0 for
  // causal rows.
  int32_t shared_last_key;
  int32_t first_row;  // the tile's first row; the sequence's first row is 0
  int32_t num_rows;
  int32_t sequence;
  int32_t begin_split;  // [begin_split, end_split): splits that at least one row of the tile sees
  int32_t end_split;
  int32_t begin_part;  // [begin_part, end_part): those of them to compute
  int32_t end_part;
  int32_t partial;  // index of the tile in counters, and of its first split in partials. A
                    // split of a wide tile takes one partial for each kTileRows of its rows

  // If so, the sums of its splits become partials, which the tile's last CTA merges. Otherwise the
  // unit writes the output itself. Not of ExpandedChunk's units.
  constexpr bool IsPart() const { return end_part - begin_part < end_split - begin_split; }
};

// The start of a plan's device memory; the units follow it in this order.
struct AttentionHeader {
  int32_t num_units;       // of tiles up to kTileRows
  int32_t num_wide_units;  // of wide tiles
  // Units of sequences that LatentAttention serves: tiles up to kTileRows of one head, never cut
  // into splits. Each head computes all of them. With chunks (expanded_attention.h) there are none.
  int32_t num_expanded_units;
  int32_t unused;
};

// The stride of rows of partials. Four values are read at once.
constexpr int PartialFloats(int value_dim) { return value_dim + 4; }

struct AttentionArgs {
  const void* q;
  void* out;
  float* lse;             // or null
  bool q_bf16, out_bf16;  // else f32
  int64_t q_stride, out_stride, lse_stride;
  float scale;
  int32_t group;   // query heads per KV head
  int32_t window;  // 0: none
  KvLayerView cache;
  const AttentionHeader* plan;
  const int32_t* table_rows;    // [sequences]: rows of block_tables
  const int32_t* block_tables;  // [rows, table_stride]: blocks
  int64_t table_stride;
  float* partials;    // [partial, num_kv_heads, kTileRows, PartialFloats]: values, highest, sum
  int32_t* counters;  // [partial, num_kv_heads], zero between launches
  std::byte* totals;  // only for LaunchWideLatentAttention
  // The same as in Attention. Kernels for latents read none of these, mma_attention.h no slopes.
  float softcap;        // or 0
  const float* sinks;   // [heads], or null
  const float* slopes;  // [heads], or null
  // The same as in LatentAttention; the group is 1 then.
  const void* w_uk;   // [num_heads, nope_dim, latent], or null
  const void* w_uv;   // [num_heads, expanded_value_dim, latent]
  bool weights_bf16;  // else f32
  int32_t num_heads, nope_dim, expanded_value_dim;

  // Whether keys and values are decompressed from latents.
  constexpr bool Expands() const { return w_uk != nullptr; }
  constexpr int32_t key_dim() const {
    return Expands() ? cache.head_dim - cache.ValueDim() + nope_dim : cache.head_dim;
  }
  constexpr int32_t value_dim() const { return Expands() ? expanded_value_dim : cache.ValueDim(); }
  bool EditsScores() const { return softcap > 0 || sinks != nullptr || slopes != nullptr; }
};
// Launches `ctas` CTAs of the plain kernel for each KV head, which share all of the plan's units,
// wide ones too. If it decompresses: for each head, and the expanded units.
cudaError_t LaunchAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);

}  // namespace tokamak::cuda
