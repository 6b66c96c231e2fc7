// The CUDA backend's AttentionPlan: cuts a step's attention into units (attention_layout.h) on the
// host and uploads them in one small copy. One plan serves all steps in flight: each Fill has a
// pinned block of its own, and the device's side changes in stream order.
#pragma once

#include <memory>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/calls.h"
#include "ops/cuda/memory.h"
#include "ops/ops.h"

namespace tokamak::cuda {

class CudaAttentionPlan final : public AttentionPlan {
 public:
  // `num_ctas`: that the device holds at once. `pinned` is the backend's.
  static Result<std::unique_ptr<CudaAttentionPlan>> Make(const AttentionShape& shape, int num_ctas,
                                                         CallGuard& guard, BlockPool& pinned);

  void Fill(const AttentionBatch& batch, Stream& stream) override;

  const AttentionShape& shape() const { return shape_; }
  // Of the last Fill.
  const Tensor& table_rows() const { return table_rows_; }
  const Tensor& block_tables() const { return tables_; }
  const AttentionHeader* device() const {
    return reinterpret_cast<const AttentionHeader*>(device_.data());
  }
  float* partials() const { return reinterpret_cast<float*>(partials_.data()); }
  int32_t* counters() const { return reinterpret_cast<int32_t*>(counters_.data()); }
  // CTAs to launch for each KV head: fills the device whatever the step holds.
  int ctas() const { return ctas_; }

 private:
  CudaAttentionPlan(const AttentionShape& shape, int num_ctas, CallGuard& guard, BlockPool& pinned);
  Status AllocateMemory();
  int64_t MaxUnits() const;
  // Appends the tiles of sequence `s` to the units, unless that is null, and spreads those of more
  // than `long_splits` splits over units of one split. Returns the splits of all tiles.
  int64_t AddTiles(const AttentionBatch& batch, int32_t s, int64_t long_splits,
                   AttentionUnit* units);

  const AttentionShape shape_;
  CallGuard& guard_;
  BlockPool& pinned_;
  const int group_;  // query heads per KV head
  const int ctas_;
  int max_partials_ = 0;
  Tensor table_rows_;
  Tensor tables_;
  Buffer device_;  // header, units
  Buffer partials_;
  Buffer counters_;
  int64_t num_units_ = 0;  // of the step being filled in
  int num_partials_ = 0;
};

}  // namespace tokamak::cuda
