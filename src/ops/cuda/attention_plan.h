// The CUDA backend's AttentionPlan: cuts a step's attention into units (attention_layout.h) on the
// host and uploads them in one small copy. One plan serves all steps in flight: each Fill takes a
// pinned block of its own, and the copy on the device changes in stream order.
#pragma once

#include <memory>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cuda/attention_layout.h"
#include "ops/cuda/calls.h"
#include "ops/cuda/expanded_attention.h"
#include "ops/cuda/memory.h"
#include "ops/ops.h"

namespace tokamak::cuda {

// How many CTAs of each kernel the device holds at once, and what the kernel for wide tiles needs.
struct AttentionCtas {
  int narrow;                 // of the kernel for tiles of up to kTileRows rows
  int wide = 0;               // of the kernel for wide tiles; 0: the plan has no such tiles
  int wide_rows = kWideRows;  // of a wide tile; a multiple of kTileRows
  int64_t wide_bytes = 0;     // of device memory, for each of its CTAs
};

// A chunk of decompressed positions: ranges of the plan's expanded units and segments.
struct PlannedChunk {
  int32_t first_unit, num_units, first_segment, num_segments;
  int32_t num_rows;
};

// With chunk_keys in the shape's expansion, LatentAttention's sequences come in chunks
// (expanded_attention.h): whole sequences, as long as they fit, and long ones in several.
class CudaAttentionPlan final : public AttentionPlan {
 public:
  // `pinned` belongs to the backend.
  static Result<std::unique_ptr<CudaAttentionPlan>> Make(const AttentionShape& shape,
                                                         const AttentionCtas& num_ctas,
                                                         CallGuard& guard, BlockPool& pinned);

  // Ends with a copy. Kernels behind a copy begin when it is done, even dependent ones. So kernels
  // of the forward pass find the plan and the block tables complete, and may read them before the
  // kernel ahead has ended.
  void Fill(const AttentionBatch& batch, Stream& stream) override;
  BatchRows AttendedRows(int64_t num_rows) const override;

  const AttentionShape& shape() const { return shape_; }
  // Set by the last Fill.
  const Tensor& table_rows() const { return table_rows_; }
  const Tensor& block_tables() const { return tables_; }
  const AttentionHeader* device() const {
    return reinterpret_cast<const AttentionHeader*>(device_.data());
  }
  float* partials() const { return reinterpret_cast<float*>(partials_.data()); }
  int32_t* counters() const { return reinterpret_cast<int32_t*>(counters_.data()); }
  std::byte* totals() const { return totals_.data(); }  // wide_bytes for each wide CTA
  // CTAs to launch for each KV head: always enough to fill the device, but 0 if all tiles of the
  // last Fill are wide or in chunks. A step that may run as a graph (kMaxGraphQueries) never has
  // such tiles.
  int ctas() const {
    return num_units_ > 0 || (num_wide_units_ == 0 && chunks_.empty()) ? ctas_ : 0;
  }
  // CTAs to launch for the wide tiles of the last Fill.
  int wide_ctas() const;
  // The last Fill's chunks, in the order in which they must be computed, and on the device what
  // they are ranges of.
  const std::vector<PlannedChunk>& chunks() const { return chunks_; }
  const AttentionUnit* expanded_units() const {
    return reinterpret_cast<const AttentionUnit*>(device() + 1) + num_units_ + num_wide_units_;
  }
  const ExpandedSegment* segments() const {
    return reinterpret_cast<const ExpandedSegment*>(expanded_units() + chunk_units_.size());
  }
  // CTAs to launch for each head of LatentAttention. A model calls it in every step or in none, so
  // a graph may contain it.
  int expanded_ctas() const {
    return static_cast<int>(CeilDiv(int64_t{ctas_} * shape_.num_kv_heads, shape_.num_heads));
  }

 private:
  // How sequences are cut into tiles.
  struct Cut {
    int32_t tile_rows;
    int32_t group;  // rows per token
    // A tile with more splits than this is divided into parts of `part_splits`.
    int64_t long_splits;
    AttentionUnit* units;  // null: only adds up the splits
    int32_t part_splits = 1;
    int64_t num_units = 0;
    int64_t total_splits = 0;
  };

  CudaAttentionPlan(const AttentionShape& shape, const AttentionCtas& num_ctas, CallGuard& guard,
                    BlockPool& pinned);
  Status AllocateMemory();
  int64_t MaxUnits() const;
  int64_t MaxChunkBytes() const;
  enum class Tiles { kNarrow, kWide, kExpanded };  // as in AttentionHeader
  Tiles TilesOf(const AttentionBatch& batch, int32_t s) const;
  void AddTiles(const AttentionBatch& batch, int32_t s, Cut& cut);
  void AddTiles(const AttentionBatch& batch, int32_t s, const QueryPart& part, Cut& cut);
  // Cuts the sequences with such tiles into units. Returns how many there are.
  int64_t AddUnits(const AttentionBatch& batch, Tiles tiles, AttentionUnit* units);
  // Cuts the sequences with expanded tiles into chunks.
  void AddChunks(const AttentionBatch& batch);
  // Adds the sequence's keys from first_key on, as many as fit, to the last chunk. Returns the key
  // behind them.
  int32_t AddToChunk(const AttentionBatch& batch, int32_t s, int32_t first_key);

  const AttentionShape shape_;
  CallGuard& guard_;
  BlockPool& pinned_;
  const int group_;  // query heads per KV head
  const int ctas_;
  const int max_wide_ctas_, wide_rows_;
  const int64_t wide_bytes_;
  int max_partials_ = 0;
  Tensor table_rows_;
  Tensor tables_;
  Buffer device_;  // header, units
  Buffer partials_;
  Buffer counters_;
  Buffer totals_;
  // Set by the last Fill.
  int64_t num_units_ = 0;
  int64_t num_wide_units_ = 0;
  int num_partials_ = 0;
  BatchRows attended_;
  std::vector<PlannedChunk> chunks_;
  std::vector<AttentionUnit> chunk_units_;
  std::vector<ExpandedSegment> segments_;
};

}  // namespace tokamak::cuda
