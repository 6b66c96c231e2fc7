// The CUDA backend's AttentionPlan: cuts a step's attention into units (attention_layout.h) on the
// host and uploads them in one small copy. One plan serves all steps in flight: each Fill takes a
// pinned block of its own, and the copy on the device changes in stream order.
#pragma once

#include <memory>

#include "base/ceil_div.h"
#include "ops/cuda/attention_layout.h"
#include "ops/cuda/calls.h"
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
  // last Fill are wide. A step that may run as a graph (kMaxGraphQueries) never has wide tiles.
  int ctas() const { return num_units_ > 0 || num_wide_units_ == 0 ? ctas_ : 0; }
  // CTAs to launch for the wide tiles of the last Fill.
  int wide_ctas() const;
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
  enum class Tiles { kNarrow, kWide, kExpanded };  // as in AttentionHeader
  Tiles TilesOf(const AttentionBatch& batch, int32_t s) const;
  void AddTiles(const AttentionBatch& batch, int32_t s, Cut& cut);
  // Cuts the sequences with such tiles into units. Returns how many there are.
  int64_t AddUnits(const AttentionBatch& batch, Tiles tiles, AttentionUnit* units);

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
};

}  // namespace tokamak::cuda
