// Attention to decompressed latents on tensor cores (LatentAttention of ops/mla.h with scratch),
// for DeepSeek's and Kimi's heads: keys of 64 rotated and 128 other elements, values of 128. The
// sequences that a plan's expansion takes get their cache entries decompressed in chunks:
//
//   LaunchGatherEntries      a chunk's entries from the paged cache, as rows of bf16
//   gemm.h                   the keys and values of all heads, from those rows
//   LaunchExpandedAttention  by wgmma in tiles of 128 rows of a head (wide_attention.cu). Until a
//                            sequence's last chunk, the sums of its rows are kept as partials
//
// A row's bits depend on where chunks begin, so on the sequences beside its own.
#pragma once

#include "ops/cuda/attention_layout.h"
#include "ops/graph_batch.h"

namespace tokamak::cuda {

inline constexpr int kExpandedRotatedDim = 64;
inline constexpr int kExpandedNopeDim = 128;
inline constexpr int kExpandedKeyDim = kExpandedRotatedDim + kExpandedNopeDim;
inline constexpr int kExpandedValueDim = 128;
// Sequences with fewer new tokens than this never come in chunks: a graph has none of these
// launches.
inline constexpr int kMinExpandedQueries = kMaxGraphQueries + 1;

// Positions of a sequence that lie in a chunk, one row after the other.
struct ExpandedSegment {
  int32_t sequence;
  int32_t first_key;  // a multiple of kSplitKeys
  int32_t num_keys;
  int32_t first_row;  // in the chunk
};

// Returns whether this attention exists for such latents: those heads, a bf16 or FP8 cache whose
// entries are multiples of 16 bytes, and chunks of whole splits.
bool HasExpandedAttention(const AttentionShape& shape);

// out[row] = the entry of the row's position, in bf16.
struct GatherEntriesArgs {
  KvLayerView cache;
  const int32_t* table_rows;  // these three as in AttentionArgs
  const int32_t* block_tables;
  int64_t table_stride;
  const ExpandedSegment* segments;  // in the order of their rows, which leave no gap
  int32_t num_segments, num_rows;
  uint16_t* out;  // [num_rows, cache.head_dim], aligned to 16 bytes
};
// Launches a dependent: the kernel ahead must not write the segments or the block tables.
cudaError_t LaunchGatherEntries(const GatherEntriesArgs& args, cudaStream_t stream);

// A chunk's rows, each aligned to 16 bytes.
struct ExpandedChunk {
  const uint16_t* entries;  // [num_rows, entry_dim], rotated keys first
  const uint16_t* keys;     // [num_rows, heads · kExpandedNopeDim]
  const uint16_t* values;   // [num_rows, heads · kExpandedValueDim]
  int32_t num_rows, entry_dim;
  // On the device: tiles of up to kWideRows rows of one head. Their parts are the chunk's splits,
  // and `partial` is the chunk's row of the first key of begin_part.
  const AttentionUnit* units;
  int32_t num_units;
};
// `ctas` CTAs share the units of all heads (args.cache.num_kv_heads; the group is 1). `partials`:
// [tokens, heads, PartialFloats]. Launches a dependent: the kernel ahead
// must not write the units.
cudaError_t LaunchExpandedAttention(const AttentionArgs& args, const ExpandedChunk& chunk, int ctas,
                                    cudaStream_t stream);

}  // namespace tokamak::cuda
