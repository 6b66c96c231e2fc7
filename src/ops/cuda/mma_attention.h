// Attention over a bf16 cache on tensor cores: by mma.sync in tiles of up to 16 rows, for decoding,
// and by wgmma in tiles of up to 128, for prefills. Both give the same bits.
//
// They take the units of attention_layout.h. A row's recipe, whatever tile and CTA it is in:
//   tiles    64 keys each, at absolute positions, within splits of 256
//   scores   q rounded to bf16; one chain over ascending dimensions, 16 at a time; -∞ for keys that
//            the row does not see
//   weights  2^(scale · log2(e) · score - highest), with the highest of the split's tiles so far.
//            What was summed up with a lower one is multiplied by 2^(lower - highest)
//   values   weights rounded to bf16; one chain over the tile's ascending keys, 16 at a time, onto
//            what the split has so far
//   sum      of the unrounded weights: 16 sums over the split's tiles, by key % 64 / 16 and by
//            key % 8 / 2; those of a key % 64 / 16 as (0 + 1) + (2 + 3), then these four ascending
//   splits   each from zero sums, merged in ascending order
// Keys that the row does not see add nothing, not even a NaN: tensor cores cut sums off below the
// largest product, which is never a product with a zero.
#pragma once

#include "ops/cuda/attention_layout.h"

namespace tokamak::cuda {

// Whether this attention exists for such a cache: bf16, heads of 64 or 128, blocks of a power of
// two of at least 8 positions.
bool HasMmaAttention(DType dtype, int32_t head_dim, int32_t block_size);
// Whether it can also read this particular cache: everything at multiples of 16 bytes, no values in
// keys.
bool MmaAttentionReads(const KvLayerView& cache);

// LaunchAttention as a dependent of the kernel ahead. `partials` hold `highest` in units of log2.
cudaError_t LaunchMmaAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);
// The same for the plan's wide units. A job is a unit and a KV head; `ctas` CTAs share all jobs.
cudaError_t LaunchWideAttention(const AttentionArgs& args, int ctas, cudaStream_t stream);

}  // namespace tokamak::cuda
