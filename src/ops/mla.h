// The operations of multi-head latent attention (arXiv:2405.04434, section 2.1; DeepSeek-V2 and
// V3), besides Attention itself. A position keeps one vector for all heads, its rotated key and its
// latent, from which every head's own key and value can be computed:
//
//   key[h] = [rotated | W_UK_h · latent],  value[h] = W_UV_h · latent.
//
// Scores and sums of values are linear in the latent. So attention may work on decompressed keys
// and values (LatentAttention), or on the latents themselves, which are then keys and values of one
// KV head (Attention, with values_in_keys), by queries [rotated | W_UK_hᵀ · q] and with W_UV_h
// applied to what comes out: the absorbed form.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention.h"
#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tokamak {

// Columns of each head in rows of all heads: those of head h are
// [first + h · step, first + h · step + cols). A step of 0: the same for all.
struct HeadColumns {
  Tensor tensor;  // f32 [T, ...]
  int64_t first = 0;
  int64_t step = 0;
  int64_t cols = 0;

  const float* Of(int64_t token, int64_t head) const {
    return tensor.Row<float>(token) + first + head * step;
  }
};

// out[t, h] = [copied[t, h] | W_h · x[t, h]].
struct HeadLinear {
  HeadColumns x;
  // One per head, all of one shape, packed so that activation() is f32.
  std::span<const PackedWeight* const> weights;
  HeadColumns copied;  // 0 columns: none
  Tensor out;          // f32 [T, heads * (copied.cols + rows of a weight)]
};

// Attention of the sequences that the plan's expansion takes; the rows of others are left alone.
// Each sequence's keys and values are decompressed for it, part by part.
struct LatentAttention {
  Tensor q;           // f32 [T, heads * (rotated + nope_dim)], each head's rotated part first
  KvLayerView cache;  // of latents, values_in_keys
  const AttentionPlan* plan = nullptr;
  // W_UK_h [nope_dim, latent] and W_UV_h [value_dim, latent] of each head, packed as for
  // HeadLinear.
  std::span<const PackedWeight* const> w_uk;
  std::span<const PackedWeight* const> w_uv;
  float scale = 0;
  Tensor out;  // f32 [T, heads * value_dim]
};

}  // namespace tokamak
