#include "ops/cuda/flashinfer/cut.h"

#include <algorithm>

#include "base/ceil_div.h"

namespace tokamak::cuda {
namespace {

constexpr int32_t kMinTileRows = 16;
constexpr int32_t kMaxTileRows = 128;
constexpr int32_t kKeyStep = 64;  // chunks have a multiple of these, and at least two

// FlashInfer takes the tile that fits the average sequence.
int32_t TileRows(int64_t average_rows) {
  return average_rows > 64 ? kMaxTileRows : average_rows > kMinTileRows ? 64 : kMinTileRows;
}

// The kernel computes this number in the same way. Padding has no keys and one chunk.
int32_t NumChunks(int32_t keys, int32_t chunk_keys) {
  return static_cast<int32_t>(CeilDiv(int64_t{std::max(1, keys)}, chunk_keys));
}

}  // namespace

int64_t FlashInferCutter::CountUnits(std::span<const int32_t> query_start_loc,
                                     std::span<const int32_t> seq_lens, int32_t tile_rows,
                                     int32_t chunk_keys) const {
  int64_t units = 0;
  for (size_t s = 0; s < seq_lens.size(); ++s) {
    const int64_t rows = int64_t{query_start_loc[s + 1] - query_start_loc[s]} * group_;
    units += CeilDiv(rows, tile_rows) * NumChunks(seq_lens[s], chunk_keys);
  }
  return units;
}

FlashInferCut FlashInferCutter::Cut(std::span<const int32_t> query_start_loc,
                                    std::span<const int32_t> seq_lens) const {
  FlashInferCut cut;
  if (seq_lens.empty()) return cut;
  cut.num_seqs = static_cast<int32_t>(seq_lens.size());
  cut.num_tokens = query_start_loc[seq_lens.size()];
  const bool is_decode = cut.num_tokens == cut.num_seqs;
  cut.tile_rows = TileRows(int64_t{cut.num_tokens} * group_ / cut.num_seqs);
  const int32_t longest = *std::max_element(seq_lens.begin(), seq_lens.end());
  // The shortest chunks with which all CTAs run at once.
  int32_t low = 2;
  int32_t high = static_cast<int32_t>(CeilDiv(int64_t{longest}, kKeyStep));
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    const int64_t units = CountUnits(query_start_loc, seq_lens, cut.tile_rows, middle * kKeyStep);
    (units > max_ctas_ ? low : high) = units > max_ctas_ ? middle + 1 : middle;
  }
  cut.chunk_keys = low * kKeyStep;
  cut.split = is_decode || cut.chunk_keys < longest;
  cut.num_units =
      static_cast<int32_t>(CountUnits(query_start_loc, seq_lens, cut.tile_rows, cut.chunk_keys));
  const int64_t tiles = CeilDiv(int64_t{group_}, cut.tile_rows) * cut.num_seqs;  // of decoding
  cut.num_ctas =
      is_decode ? static_cast<int32_t>(std::max<int64_t>(max_ctas_, tiles)) : cut.num_units;
  if (!cut.split) return cut;
  for (size_t s = 0; s < seq_lens.size(); ++s) {
    cut.num_partials +=
        (query_start_loc[s + 1] - query_start_loc[s]) * NumChunks(seq_lens[s], cut.chunk_keys);
  }
  return cut;
}

void FlashInferCutter::Write(const FlashInferCut& cut, std::span<const int32_t> query_start_loc,
                             std::span<const int32_t> seq_lens, int32_t* plan) const {
  int32_t* const valid = plan + cut.valid();
  std::fill_n(reinterpret_cast<bool*>(valid), cut.num_ctas, false);
  std::fill_n(reinterpret_cast<bool*>(valid), cut.num_units, true);
  plan[cut.chunk_size()] = cut.chunk_keys;
  int32_t* const sequence_partials = plan + cut.sequence_partials();
  int32_t* const token_partials = plan + cut.token_partials();
  int32_t unit = 0, partial = 0;
  for (int32_t s = 0; s < cut.num_seqs; ++s) {
    const auto seq = static_cast<size_t>(s);
    const int32_t queries = query_start_loc[seq + 1] - query_start_loc[seq];
    const int32_t chunks = NumChunks(seq_lens[seq], cut.chunk_keys);
    const auto tiles = static_cast<int32_t>(CeilDiv(int64_t{queries} * group_, cut.tile_rows));
    for (int32_t tile = 0; tile < tiles; ++tile) {
      for (int32_t chunk = 0; chunk < chunks; ++chunk, ++unit) {
        plan[cut.sequences() + unit] = s;
        plan[cut.tiles() + unit] = tile;
        plan[cut.chunks() + unit] = chunk;
      }
    }
    sequence_partials[s] = partial;
    for (int32_t token = query_start_loc[seq]; token < query_start_loc[seq + 1]; ++token) {
      token_partials[token] = partial;
      partial += chunks;
    }
  }
  sequence_partials[cut.num_seqs] = partial;
  token_partials[cut.num_tokens] = partial;
}

FlashInferBounds FlashInferCutter::Bounds(int32_t max_seqs, int32_t max_tokens) const {
  FlashInferCut largest;
  largest.num_seqs = max_seqs;
  largest.num_tokens = max_tokens;
  const int64_t tiles = CeilDiv(int64_t{max_tokens} * group_, kMinTileRows) + max_seqs;
  largest.num_ctas = static_cast<int32_t>(std::max<int64_t>(max_ctas_, tiles));
  // A split step has at most max_ctas_ units, or one partial for each of its sequences.
  return {.bytes = largest.bytes(),
          .num_partials = std::max<int64_t>(max_seqs, int64_t{max_ctas_} * kMaxTileRows / group_)};
}

}  // namespace tokamak::cuda
