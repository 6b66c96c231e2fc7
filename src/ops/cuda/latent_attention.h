// Latent attention in the absorbed form (ops/mla.h) on tensor cores.
//
// Attention to latents: over a bf16 or FP8 cache, for the sizes of DeepSeek and Kimi: one KV head,
// keys of 576 elements, of which the last 512 are the values. The query heads are the rows, of one
// or more tokens: up to 16 in a tile for decoding, by mma.sync, and up to 64 in one for prefills,
// by wgmma. A row's recipe is that of mma_attention.h, so both give the same bits.
//
// The heads' products, of any size (LaunchMmaHeadLinear in kernels.h), belong to the same family.
#pragma once

#include "ops/cuda/attention_layout.h"

namespace tokamak::cuda {

// Device memory that LaunchWideLatentAttention needs for each CTA: the totals of merged splits.
inline constexpr int64_t kWideLatentBytes = int64_t{kWideLatentRows} * 512 * sizeof(float);

// Returns whether this attention exists for such a cache: bf16 or FP8, those sizes, and at least 8
// positions per block, a power of two.
bool HasLatentAttention(const AttentionShape& shape);
// Returns whether it can also read this cache: everything lies at multiples of 16 bytes.
bool LatentAttentionReads(const KvLayerView& cache);

// Like LaunchMmaAttention.
cudaError_t LaunchLatentAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);
// The same for GPUs without TMA. They have no wide units.
cudaError_t LaunchAmpereLatentAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);
// LaunchLatentAttention for the plan's wide units, of up to kWideLatentRows rows. `totals` has
// kWideLatentBytes for each of the `ctas` CTAs, which overwrites them.
cudaError_t LaunchWideLatentAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);

}  // namespace tokamak::cuda
