// FlashInfer's attention, as libtokamak_cuda.so sees it. Without TOKAMAK_FLASHINFER, and on the
// emulator, no_kernels.cc stands in for kernels.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/flashinfer/cut.h"
#include "ops/ops.h"

namespace tokamak::cuda {

// A step's batch in device memory.
struct FlashInferStep {
  FlashInferCut cut;
  int32_t* arrays = nullptr;  // of the cut
  int32_t* query_start_loc = nullptr;
  int32_t* seq_lens = nullptr;
  int32_t* table_starts = nullptr;  // [num_seqs + 1]: where in block_tables each sequence's begins,
                                    // and how many entries there are
  int32_t* block_tables = nullptr;
  std::byte* partials = nullptr;  // bf16 [num_partials, num_heads, head_dim]
  float* partial_lse = nullptr;   // [num_partials, num_heads]
};

// Whether this build has the kernels.
bool HasFlashInfer();

// Writes step.table_starts. `rows` [num_seqs]: the rows of `tables`, which are step.block_tables.
cudaError_t LaunchTableStarts(const Tensor& rows, const Tensor& tables, const FlashInferStep& step,
                              cudaStream_t stream);

// q and out are bf16, out without gaps between rows; the cache is bf16, with heads of 64 or 128.
cudaError_t LaunchFlashInfer(const Attention& op, const FlashInferStep& step, cudaStream_t stream);

}  // namespace tokamak::cuda
