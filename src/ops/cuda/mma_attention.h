// Attention over a bf16 or FP8 cache on tensor cores: by mma.sync in tiles of up to 16 rows, for
// decoding, and by wgmma in tiles of up to 128, for prefills. Both give the same bits.
//
// They take the units of attention_layout.h. A row's recipe, whatever tile and CTA it is in:
//   tiles    64 keys each, at absolute positions, within splits of 256
//   scores   q rounded to bf16; one chain over ascending dimensions, 16 at a time; if scores are
//            capped, then tanh(scale · score / cap), and the cap takes the place of the scale; -∞
//            for keys that the row does not see
//   weights  2^(scale · log2(e) · score - highest), with the highest score of the split's tiles so
//            far. When a tile has a higher one, the sums so far are multiplied by 2^(old - new)
//   values   weights rounded to bf16; one chain over the tile's ascending keys, 16 at a time, which
//            continues the split's sums so far
//   sum      of the unrounded weights: running sums (g, p) over the split's tiles, g and p from 0
//            to 3. Each tile adds (w[k] + w[k + 1]) + (w[k + 8] + w[k + 9]) with k = 16 g + 2 p. At
//            the end each g has ((g, 0) + (g, 1)) + ((g, 2) + (g, 3)), and these four are added in
//            ascending order
//   splits   each from zero sums, merged in ascending order; last the sink, a score without a value
// Keys and values are multiplied as bf16, which has all values of FP8 (E4M3).
//
// A key that the row does not see changes no bit, even if its value is NaN or Inf. Its weight is 0.
// Tensor cores cut a sum off below its largest term, which is never a product with a zero. A value
// that is not finite is replaced by zero (mma_attention_rows.cuh).
#pragma once

#include "ops/cuda/attention_layout.h"

namespace tokamak::cuda {

// Returns whether this attention exists for such a cache: bf16 or FP8, heads of 32, 64, 96, 128 or
// 256, and at least 8 positions per block, a power of two.
bool HasMmaAttention(DType dtype, int32_t head_dim, int32_t block_size);
// Returns whether it also has wide tiles. A wide tile's sums of heads of 256 would not fit into
// registers.
constexpr bool HasWideAttention(int32_t head_dim) { return head_dim <= 128; }
// Returns whether it can also read this cache: everything lies at multiples of 16 bytes, and values
// are not part of the keys.
bool MmaAttentionReads(const KvLayerView& cache);

// LaunchAttention as a dependent of the kernel ahead, without slopes. `partials` hold `highest` in
// units of log2. Plan, block tables and keys of positions before the step's must be written before
// the first of the dependent launches ahead begins: they are read before the kernel ahead has
// ended.
cudaError_t LaunchMmaAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);
// The same for GPUs without TMA. They have no wide units.
cudaError_t LaunchAmpereAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);
// LaunchMmaAttention for the plan's wide units. A job is a unit and a KV head; `ctas` CTAs share
// all jobs.
cudaError_t LaunchWideAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);

}  // namespace tokamak::cuda
