// The AttentionPlan for FlashInfer's kernels (docs/flashinfer.md). One plan serves all steps in
// flight, as CudaAttentionPlan does.
#pragma once

#include <memory>

#include "ops/cuda/calls.h"
#include "ops/cuda/flashinfer/cut.h"
#include "ops/cuda/flashinfer/kernels.h"
#include "ops/cuda/memory.h"
#include "ops/ops.h"

namespace tokamak::cuda {

class FlashInferPlan final : public AttentionPlan {
 public:
  // kUnimplemented, with what the option supports, for other shapes. `max_ctas`: that the device
  // holds at once. `pinned` belongs to the backend.
  static Result<std::unique_ptr<FlashInferPlan>> Make(const AttentionShape& shape, int max_ctas,
                                                      CallGuard& guard, BlockPool& pinned);

  // Ends with a copy, so that kernels behind it find the plan complete, as in CudaAttentionPlan.
  void Fill(const AttentionBatch& batch, Stream& stream) override;

  void Run(const Attention& op, Stream& stream) const;

 private:
  FlashInferPlan(const AttentionShape& shape, int max_ctas, CallGuard& guard, BlockPool& pinned);
  Status AllocateMemory();

  const AttentionShape shape_;
  const FlashInferCutter cutter_;
  CallGuard& guard_;
  BlockPool& pinned_;
  Buffer table_starts_, arrays_, partials_, partial_lse_;  // see FlashInferStep
  FlashInferStep step_;                                    // set by the last Fill
};

}  // namespace tokamak::cuda
