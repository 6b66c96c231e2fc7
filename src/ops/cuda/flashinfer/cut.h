// How FlashInfer's kernel cuts a step's attention into CTAs (docs/flashinfer.md).
//
// The queries of a sequence that read the same KV head are rows, as in attention_layout.h. A tile
// is up to `tile_rows` of them. The keys of each sequence are cut into chunks of `chunk_keys`. For
// each KV head, one CTA computes one chunk for one tile. If the step is `split`, a token has a
// partial result for each chunk of its sequence, and a second kernel merges them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tokamak::cuda {

struct FlashInferCut {
  int32_t num_seqs = 0;
  int32_t num_tokens = 0;
  int32_t tile_rows = 0;  // 16, 64 or 128
  int32_t chunk_keys = 0;
  bool split = false;
  int32_t num_units = 0;     // tiles, each times the chunks of its sequence
  int32_t num_ctas = 0;      // of each KV head; those from num_units on have nothing to do
  int32_t num_partials = 0;  // of each head; 0 if not split

  // The arrays for the kernel, as indices of int32 in the plan's memory: for each CTA its sequence,
  // the tile in it and the chunk in it; the first partial of each sequence [num_seqs + 1] and of
  // each token [num_tokens + 1] (both count tokens instead if not split); chunk_keys; and for each
  // CTA a byte, whether it has something to do.
  int64_t sequences() const { return 0; }
  int64_t tiles() const { return num_ctas; }
  int64_t chunks() const { return int64_t{2} * num_ctas; }
  int64_t sequence_partials() const { return int64_t{3} * num_ctas; }
  int64_t token_partials() const { return sequence_partials() + num_seqs + 1; }
  int64_t chunk_size() const { return token_partials() + num_tokens + 1; }
  int64_t valid() const { return chunk_size() + 1; }
  size_t bytes() const { return static_cast<size_t>(4 * valid() + num_ctas); }
};

// The largest cuts of batches with up to so many sequences and tokens.
struct FlashInferBounds {
  size_t bytes;
  int64_t num_partials;  // of each head
};

// Cuts batches for one shape of attention.
class FlashInferCutter {
 public:
  // `group`: query heads per KV head. `max_ctas`: CTAs of each KV head that the device holds at
  // once.
  FlashInferCutter(int32_t group, int32_t max_ctas) : group_(group), max_ctas_(max_ctas) {}

  // The arguments are as in AttentionBatch. If there are as many sequences as queries, only
  // chunk_keys, num_units and num_partials depend on more than their number, so a graph can contain
  // the launches.
  FlashInferCut Cut(std::span<const int32_t> query_start_loc,
                    std::span<const int32_t> seq_lens) const;
  // Writes the arrays of cut.bytes() for the batch that was cut.
  void Write(const FlashInferCut& cut, std::span<const int32_t> query_start_loc,
             std::span<const int32_t> seq_lens, int32_t* plan) const;
  FlashInferBounds Bounds(int32_t max_seqs, int32_t max_tokens) const;

 private:
  // Tiles of the batch, each times the chunks of its sequence.
  int64_t CountUnits(std::span<const int32_t> query_start_loc, std::span<const int32_t> seq_lens,
                     int32_t tile_rows, int32_t chunk_keys) const;

  const int32_t group_;
  const int32_t max_ctas_;
};

}  // namespace tokamak::cuda
