// Operations of multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434, section 2.1). The
// cache holds one vector per position, a rotated key and a latent, from which every head's key and
// value are computed:
//
//   key[h] = [rotated | W_UK_h · latent],  value[h] = W_UV_h · latent.
//
// LatentAttention decompresses keys and values. The absorbed form runs Attention on the latents
// themselves, as keys and values of one KV head (values_in_keys): queries are [rotated | W_UK_hᵀ ·
// q], and W_UV_h is applied to the result. Both are equal, because scores and weighted sums are
// linear in the latent.
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tokamak {

// Columns of each head: head h has [first + h · step, first + h · step + cols). Step 0: all heads
// share them.
struct HeadColumns {
  Tensor tensor;  // [T, ...]
  int64_t first = 0;
  int64_t step = 0;
  int64_t cols = 0;

  const float* Of(int64_t token, int64_t head) const {
    return tensor.Row<float>(token) + first + head * step;
  }
};

// out[t, h] = [copied[t, h] | W_h · x[t, h]].
struct HeadLinear {
  HeadColumns x;                         // f32 or weights->activation(), to which f32 is rounded
  const PackedStack* weights = nullptr;  // one per head, packed as WeightUse::kHeads
  HeadColumns copied;                    // no columns: nothing is copied. f32 or weights->output()
  // f32 or weights->output() [T, heads * (copied.cols + rows of a weight)]
  Tensor out;
};

// Bytes of LatentAttention::scratch for T tokens: entries, keys and values of chunk_keys positions
// in bf16, and in f32 for each row the sums of a sequence that takes several chunks.
constexpr int64_t LatentScratchBytes(const LatentExpansion& e, int64_t entry_dim, int64_t num_heads,
                                     int64_t num_tokens) {
  const int64_t elements = entry_dim + num_heads * (e.nope_dim + e.value_dim);
  return e.chunk_keys * elements * 2 + num_tokens * num_heads * (e.value_dim + 4) * 4;
}

// Attention for the sequences that the plan's expansion takes; decompresses their keys and values
// piece by piece. Leaves other sequences' rows unchanged.
struct LatentAttention {
  // f32 or w_uk->output() [T, heads * (rotated + nope_dim)], each head's rotated part first
  Tensor q;
  KvLayerView cache;  // of latents, with values_in_keys
  const AttentionPlan* plan = nullptr;
  // W_UK_h [nope_dim, latent] and W_UV_h [value_dim, latent] of each head, packed as for
  // HeadLinear.
  const PackedStack* w_uk = nullptr;
  const PackedStack* w_uv = nullptr;
  float scale = 0;
  Tensor out;      // f32, or with chunk_keys w_uv->output() [T, heads * value_dim]
  Tensor scratch;  // i8, LatentScratchBytes if the expansion has chunk_keys
};

}  // namespace tokamak
