// Multi-head latent attention (MLA): keys and values of all heads are computed from one short
// latent vector per position. arXiv:2405.04434, section 2.1; also DeepSeek-V3, arXiv:2412.19437.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pass.h"
#include "nn/rope.h"
#include "nn/sublayer.h"
#include "tokamak/option_values.h"

namespace tokamak::nn {

struct MlaConfig {
  int32_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t q_lora_rank = 0;  // 0: q_proj projects queries in one step
  int32_t kv_lora_rank = 0;
  int32_t rope_dim = 0;   // qk_rope_head_dim: the rotated key, shared by all heads
  int32_t nope_dim = 0;   // qk_nope_head_dim: a head's own key, not rotated
  int32_t value_dim = 0;  // v_head_dim
  float scale = 0;        // of the scores
  bool bias = false;      // of q_a_proj, kv_a_proj_with_mqa and o_proj
  MlaForm form = MlaForm::kAbsorbed;
};

class MlaAttention final : public Sublayer {
 public:
  MlaAttention() = default;
  // Reads q_proj (or q_a_proj, q_a_layernorm, q_b_proj), kv_a_proj_with_mqa, kv_a_layernorm,
  // kv_b_proj (or k_b_proj, transposed, and v_b_proj) and o_proj below b, and adds a layer to the
  // load's cache layout. `rope` must outlive this.
  MlaAttention(const Builder& b, const MlaConfig& config, const Rope* rope);

  DType activation() const override { return qkv_a_proj_.activation(); }
  DType output() const override { return output_.output(); }
  void ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const override;

 private:
  void ReadQkvA(const Builder& b);
  OwnedTensor ReadQkvABias(const Builder& b) const;
  void ReadHeads(const Builder& b);
  void AddCacheLayer(const Builder& b);
  // Computes q [T, heads · (rope + nope)] and cache entries [T, rope + latent], not yet rotated.
  void Project(Pass& pass, Tensor x, Tensor& q, Tensor& entry) const;
  // Attention in each form. `attn_output` is [T, heads · value_dim], f32 or, for kAbsorbed,
  // w_uv_->output().
  void AttendStandard(Pass& pass, Tensor q, Tensor entry, Tensor attn_output) const;
  void AttendAbsorbed(Pass& pass, Tensor q, Tensor attn_output) const;
  void AttendLatent(Pass& pass, Tensor q, Tensor attn_output) const;

  int64_t key_dim() const { return config_.rope_dim + config_.nope_dim; }
  int64_t entry_dim() const { return config_.rope_dim + config_.kv_lora_rank; }
  bool has(MlaForm form) const { return config_.form == form || config_.form == MlaForm::kAuto; }

  MlaConfig config_;
  IndexRange heads_;   // of this rank
  int32_t group_ = 0;  // index into the pass's cache groups
  int32_t layer_ = 0;  // index into the pass's KV layers
  LatentExpansion expansion_;
  const Rope* rope_ = nullptr;
  // Projects x to the query or its latent, and to the cache entry, rotated key first.
  Linear qkv_a_proj_;
  Norm q_a_norm_;
  Linear q_b_proj_;
  Norm kv_a_norm_;
  // By head, from kv_b_proj: [nope, latent], its transpose, and [value, latent].
  StackPtr w_uk_;
  StackPtr w_uk_t_;
  StackPtr w_uv_;
  Linear output_;
};

}  // namespace tokamak::nn
