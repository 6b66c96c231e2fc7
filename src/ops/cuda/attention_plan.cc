#include "ops/cuda/attention_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "ops/cuda/check_sizes.h"
#include "ops/cuda/stream.h"
#include "ops/graph_batch.h"

namespace tokamak::cuda {
namespace {

// Limits on a plan's memory for the partial sums of splits, in tiles and in bytes. They also limit
// how many CTAs can share the longest sequences.
constexpr int kMaxPartials = 2048;
constexpr int64_t kMaxPartialBytes = 128 << 20;

// Sequences with fewer rows or tokens than this in a step have no wide tiles. Few rows would waste
// most of a tile. Few tokens may be drafts to verify, perhaps in a graph; wide tiles are for
// prefills.
constexpr int32_t kMinWideRows = 64;
constexpr int32_t kMinWideTokens = kMaxGraphQueries + 1;

int NumSplits(const AttentionUnit& unit) { return unit.end_part - unit.begin_part; }

// The units with the most splits first, because CTAs take units in turn.
void SortUnits(std::span<AttentionUnit> units) {
  std::ranges::sort(units, [](const AttentionUnit& a, const AttentionUnit& b) {
    return std::tuple(-NumSplits(a), a.sequence, a.first_row, a.begin_part) <
           std::tuple(-NumSplits(b), b.sequence, b.first_row, b.begin_part);
  });
}

}  // namespace

CudaAttentionPlan::CudaAttentionPlan(const AttentionShape& shape, const AttentionCtas& num_ctas,
                                     CallGuard& guard, BlockPool& pinned)
    : shape_(shape),
      guard_(guard),
      pinned_(pinned),
      group_(shape.num_heads / shape.num_kv_heads),
      ctas_(static_cast<int>(CeilDiv(int64_t{num_ctas.narrow}, shape.num_kv_heads))),
      max_wide_ctas_(num_ctas.wide),
      wide_rows_(num_ctas.wide_rows),
      wide_bytes_(num_ctas.wide_bytes) {}

Result<std::unique_ptr<CudaAttentionPlan>> CudaAttentionPlan::Make(const AttentionShape& shape,
                                                                   const AttentionCtas& num_ctas,
                                                                   CallGuard& guard,
                                                                   BlockPool& pinned) {
  RETURN_IF_ERROR(CheckCudaAttention(shape));
  if (!CudaHoldsKeys(shape.kv_dtype)) {
    return Unimplemented("CUDA: a KV cache of {}", Name(shape.kv_dtype));
  }
  CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  CHECK(shape.causal || (shape.window == 0 && !shape.bidirectional));
  std::unique_ptr<CudaAttentionPlan> plan(new CudaAttentionPlan(shape, num_ctas, guard, pinned));
  RETURN_IF_ERROR(plan->AllocateMemory());
  return plan;
}

// Each part of a sequence (ForEachPart) may end in a tile that is not full.
int64_t CudaAttentionPlan::MaxUnits() const {
  const int32_t max_parts = shape_.bidirectional ? shape_.max_tokens : shape_.max_seqs;
  return CeilDiv(int64_t{shape_.max_tokens} * group_, kTileRows) + max_parts + max_partials_;
}

// The most bytes of units and segments in chunks: a sequence with expanded tiles has at least
// min_queries tokens, and is in no more chunks than its longest context fills, and one more.
int64_t CudaAttentionPlan::MaxChunkBytes() const {
  const LatentExpansion& e = shape_.expansion;
  if (e.chunk_keys == 0) return 0;
  const int64_t sequences = std::min<int64_t>(shape_.max_seqs, shape_.max_tokens / e.min_queries);
  const int64_t tiles = shape_.max_tokens / kWideRows + sequences;
  const int64_t chunks =
      CeilDiv(int64_t{shape_.max_blocks_per_seq} * shape_.block_size, e.chunk_keys) + 1;
  return chunks * (tiles * static_cast<int64_t>(sizeof(AttentionUnit)) +
                   sequences * static_cast<int64_t>(sizeof(ExpandedSegment)));
}

Status CudaAttentionPlan::AllocateMemory() {
  const int64_t partial_bytes = int64_t{shape_.num_kv_heads} * kTileRows *
                                PartialFloats(shape_.ValueDim()) *
                                static_cast<int64_t>(sizeof(float));
  max_partials_ =
      static_cast<int>(std::min<int64_t>(kMaxPartials, kMaxPartialBytes / partial_bytes));
  const int64_t bytes = static_cast<int64_t>(sizeof(AttentionHeader)) +
                        MaxUnits() * static_cast<int64_t>(sizeof(AttentionUnit)) + MaxChunkBytes();
  const auto allocate = [this](int64_t size, MemoryKind kind) {
    return cuda::AllocateMemory(guard_, static_cast<size_t>(size), kind);
  };
  ASSIGN_OR_RETURN(device_, allocate(bytes, MemoryKind::kDevice));
  RETURN_IF_ERROR(pinned_.Reserve(kStepsInFlight, static_cast<size_t>(bytes)));
  if (max_wide_ctas_ * wide_bytes_ > 0) {
    ASSIGN_OR_RETURN(totals_, allocate(max_wide_ctas_ * wide_bytes_, MemoryKind::kDevice));
  }
  ASSIGN_OR_RETURN(partials_, allocate(max_partials_ * partial_bytes, MemoryKind::kDevice));
  const int64_t counter_bytes = int64_t{std::max(1, max_partials_)} * shape_.num_kv_heads *
                                static_cast<int64_t>(sizeof(int32_t));
  ASSIGN_OR_RETURN(counters_, allocate(counter_bytes, MemoryKind::kDevice));
  RETURN_IF_ERROR(
      CUDA_TRY(guard_, cudaMemset(counters_.data(), 0, static_cast<size_t>(counter_bytes))));
  // The memset runs in the default stream, for which other streams do not wait.
  return CUDA_TRY(guard_, cudaDeviceSynchronize());
}

int CudaAttentionPlan::wide_ctas() const {
  return static_cast<int>(std::min<int64_t>(max_wide_ctas_, num_wide_units_ * shape_.num_kv_heads));
}

CudaAttentionPlan::Tiles CudaAttentionPlan::TilesOf(const AttentionBatch& batch, int32_t s) const {
  const auto seq = static_cast<size_t>(s);
  const int32_t queries = batch.query_start_loc[seq + 1] - batch.query_start_loc[seq];
  if (shape_.expansion.Takes(queries)) return Tiles::kExpanded;
  const bool is_wide =
      max_wide_ctas_ > 0 && queries >= kMinWideTokens && queries * group_ >= kMinWideRows;
  return is_wide ? Tiles::kWide : Tiles::kNarrow;
}

void CudaAttentionPlan::AddTiles(const AttentionBatch& batch, int32_t s, Cut& cut) {
  if (batch.seq_lens[static_cast<size_t>(s)] == 0) return;  // padding
  ForEachPart(shape_, batch, s, [&](const QueryPart& part) { AddTiles(batch, s, part, cut); });
}

void CudaAttentionPlan::AddTiles(const AttentionBatch& batch, int32_t s, const QueryPart& part,
                                 Cut& cut) {
  const auto seq = static_cast<size_t>(s);
  const int32_t first = batch.query_start_loc[seq];
  const int32_t queries = batch.query_start_loc[seq + 1] - first;
  const auto end_row = static_cast<int32_t>(part.end - first) * cut.group;
  for (auto row = static_cast<int32_t>(part.begin - first) * cut.group; row < end_row;
       row += cut.tile_rows) {
    AttentionUnit unit;
    unit.first_token = first;
    unit.first_position = batch.seq_lens[seq] - queries;
    unit.shared_last_key = std::max(0, part.end_key - 1);
    unit.first_row = row;
    unit.num_rows = std::min(cut.tile_rows, end_row - row);
    unit.sequence = s;
    const int32_t first_position = unit.first_position + row / cut.group;
    const int32_t last_position = unit.first_position + (row + unit.num_rows - 1) / cut.group;
    const int32_t first_key =
        shape_.window > 0 ? std::max(0, first_position + 1 - shape_.window) : 0;
    unit.begin_split = first_key / kSplitKeys;
    unit.end_split = std::max(last_position, unit.shared_last_key) / kSplitKeys + 1;
    unit.begin_part = unit.begin_split;
    unit.end_part = unit.end_split;
    unit.partial = 0;
    const int splits = unit.end_split - unit.begin_split;
    cut.total_splits += splits;
    if (cut.units == nullptr) continue;
    const int partials = splits * (cut.tile_rows / kTileRows);
    if (splits > cut.long_splits && num_partials_ + partials <= max_partials_) {
      unit.partial = num_partials_;
      num_partials_ += partials;
      while (unit.begin_part < unit.end_split) {
        unit.end_part = std::min(unit.begin_part + cut.part_splits, unit.end_split);
        cut.units[cut.num_units++] = unit;
        unit.begin_part = unit.end_part;
      }
    } else {
      cut.units[cut.num_units++] = unit;
    }
  }
}

// A tile with more splits than a CTA's share is divided into parts of a share, while there is room
// for partial sums. A wide tile becomes parts of one split, and only with more than twice the
// share, because writing and merging its splits takes about as long as computing them. That changes
// no result, only which CTA computes it.
int64_t CudaAttentionPlan::AddUnits(const AttentionBatch& batch, Tiles tiles,
                                    AttentionUnit* units) {
  Cut cut = {.tile_rows = tiles == Tiles::kWide ? wide_rows_ : kTileRows,
             .group = tiles == Tiles::kExpanded ? 1 : group_,
             .long_splits = 0,
             .units = nullptr};
  const auto add_all = [&] {
    for (int32_t s = 0; s < batch.num_seqs(); ++s) {
      if (TilesOf(batch, s) == tiles) AddTiles(batch, s, cut);
    }
  };
  add_all();
  switch (tiles) {
    case Tiles::kNarrow:
      cut.long_splits = CeilDiv(cut.total_splits, ctas_);
      cut.part_splits = static_cast<int32_t>(cut.long_splits);
      break;
    case Tiles::kWide:
      cut.long_splits =
          CeilDiv(2 * cut.total_splits * shape_.num_kv_heads, std::max(1, max_wide_ctas_));
      break;
    case Tiles::kExpanded:
      cut.long_splits = cut.total_splits;  // none is divided
      break;
  }
  cut.units = units;
  add_all();
  SortUnits({units, static_cast<size_t>(cut.num_units)});
  return cut.num_units;
}

int32_t CudaAttentionPlan::AddToChunk(const AttentionBatch& batch, int32_t s, int32_t first_key) {
  const auto seq = static_cast<size_t>(s);
  PlannedChunk& chunk = chunks_.back();
  const int32_t length = batch.seq_lens[seq];
  const int32_t queries = batch.query_start_loc[seq + 1] - batch.query_start_loc[seq];
  const int32_t end_key = std::min(length, first_key + shape_.expansion.chunk_keys);
  for (int32_t row = 0; row < queries; row += kWideRows) {
    AttentionUnit unit = {.first_token = batch.query_start_loc[seq],
                          .first_position = length - queries,
                          .shared_last_key = 0,
                          .first_row = row,
                          .num_rows = std::min(kWideRows, queries - row),
                          .sequence = s,
                          .begin_split = 0,
                          .end_split = 0,
                          .begin_part = first_key / kSplitKeys,
                          .end_part = 0,
                          .partial = chunk.num_rows};
    const int32_t last_key = unit.first_position + row + unit.num_rows - 1;
    if (last_key < first_key) continue;
    unit.end_split = last_key / kSplitKeys + 1;
    unit.end_part = std::min(unit.end_split, CeilDiv(end_key, kSplitKeys));
    chunk_units_.push_back(unit);
    ++chunk.num_units;
  }
  segments_.push_back({.sequence = s,
                       .first_key = first_key,
                       .num_keys = end_key - first_key,
                       .first_row = chunk.num_rows});
  ++chunk.num_segments;
  chunk.num_rows += end_key - first_key;
  return end_key;
}

void CudaAttentionPlan::AddChunks(const AttentionBatch& batch) {
  chunks_.clear();
  chunk_units_.clear();
  segments_.clear();
  attended_ = {0, std::numeric_limits<int64_t>::max()};
  const int32_t max_rows = shape_.expansion.chunk_keys, num_seqs = batch.num_seqs();
  if (max_rows == 0 || num_seqs == 0) return;
  const auto is_expanded = [&](int32_t s) { return TilesOf(batch, s) == Tiles::kExpanded; };
  for (int32_t s = 0; s < num_seqs; ++s) {
    if (!is_expanded(s)) continue;
    const int32_t length = batch.seq_lens[static_cast<size_t>(s)];
    for (int32_t key = 0; key < length;) {
      if (chunks_.empty() || chunks_.back().num_rows + length - key > max_rows) {
        chunks_.push_back({.first_unit = static_cast<int32_t>(chunk_units_.size()),
                           .num_units = 0,
                           .first_segment = static_cast<int32_t>(segments_.size()),
                           .num_segments = 0,
                           .num_rows = 0});
      }
      key = AddToChunk(batch, s, key);
    }
  }
  for (const PlannedChunk& chunk : chunks_) {
    SortUnits(
        std::span(chunk_units_)
            .subspan(static_cast<size_t>(chunk.first_unit), static_cast<size_t>(chunk.num_units)));
  }
  int32_t first = 0, end = num_seqs;
  while (first < end && is_expanded(first)) ++first;
  while (end > first && is_expanded(end - 1)) --end;
  attended_.begin = batch.query_start_loc[static_cast<size_t>(first)];
  if (end < num_seqs) attended_.end = batch.query_start_loc[static_cast<size_t>(end)];
}

BatchRows CudaAttentionPlan::AttendedRows(int64_t num_rows) const {
  const int64_t begin = std::min(attended_.begin, num_rows);
  return {begin, std::clamp(attended_.end, begin, num_rows)};
}

void CudaAttentionPlan::Fill(const AttentionBatch& batch, Stream& stream) {
  table_rows_ = batch.table_rows;
  tables_ = batch.block_tables;
  const int32_t num_seqs = batch.num_seqs();
  CHECK(
      num_seqs <= shape_.max_seqs &&
      (num_seqs == 0 || batch.query_start_loc[static_cast<size_t>(num_seqs)] <= shape_.max_tokens));
  int64_t tiles = 0;
  for (int32_t s = 0; s < num_seqs; ++s) {
    ForEachPart(shape_, batch, s, [&](const QueryPart& part) {
      tiles += CeilDiv((part.end - part.begin) * group_, kTileRows);
    });
  }
  AddChunks(batch);
  const size_t chunk_bytes =
      chunk_units_.size() * sizeof(AttentionUnit) + segments_.size() * sizeof(ExpandedSegment);
  CHECK(static_cast<int64_t>(chunk_bytes) <= MaxChunkBytes());
  const auto max_bytes = sizeof(AttentionHeader) +
                         static_cast<size_t>(tiles + max_partials_) * sizeof(AttentionUnit) +
                         chunk_bytes;
  const BlockPool::Block staging = pinned_.Take(max_bytes);
  if (staging.data == nullptr) return;
  num_partials_ = 0;
  auto* units = reinterpret_cast<AttentionUnit*>(staging.data + sizeof(AttentionHeader));
  num_units_ = AddUnits(batch, Tiles::kNarrow, units);
  num_wide_units_ = AddUnits(batch, Tiles::kWide, units + num_units_);
  AttentionUnit* const expanded = units + num_units_ + num_wide_units_;
  const int64_t num_expanded =
      shape_.expansion.chunk_keys > 0 ? 0 : AddUnits(batch, Tiles::kExpanded, expanded);
  auto* const segments =
      reinterpret_cast<ExpandedSegment*>(std::ranges::copy(chunk_units_, expanded).out);
  std::ranges::copy(segments_, segments);
  const int64_t all_units = num_units_ + num_wide_units_ + num_expanded;
  CHECK(all_units <= std::min(tiles + max_partials_, MaxUnits()));
  *reinterpret_cast<AttentionHeader*>(staging.data) = {
      .num_units = static_cast<int32_t>(num_units_),
      .num_wide_units = static_cast<int32_t>(num_wide_units_),
      .num_expanded_units = static_cast<int32_t>(num_expanded),
      .unused = 0};
  const size_t bytes = sizeof(AttentionHeader) +
                       static_cast<size_t>(all_units) * sizeof(AttentionUnit) + chunk_bytes;
  CUDA_RUN(guard_, cudaMemcpyAsync(device_.data(), staging.data, bytes, cudaMemcpyHostToDevice,
                                   Handle(stream)));
  static_cast<CudaStream&>(stream).completions()->Add(
      {.block = staging, .deliver = nullptr, .results = {}});
}

}  // namespace tokamak::cuda
