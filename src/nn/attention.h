// Multi-head attention with grouped keys and values (arXiv:2305.13245) over the paged cache.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pass.h"
#include "nn/rope.h"

namespace tokamak::nn {

struct AttentionConfig {
  int32_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  // divides num_heads
  int32_t head_dim = 0;
  float scale = 0;     // of the scores; usually 1 / sqrt(head_dim)
  int32_t window = 0;  // keys that a query sees, its own included; 0: all
  bool qkv_bias = false;
  bool output_bias = false;
  std::optional<float> qk_norm_eps = std::nullopt;  // q and k are normalized per head with this eps
};

class Attention {
 public:
  Attention() = default;
  // Reads q_proj, k_proj, v_proj, o_proj (and q_norm, k_norm) below b, and adds a layer to the
  // load's cache layout. `rope` outlives this; null: positions do not rotate.
  Attention(const Builder& b, const AttentionConfig& config, const Rope* rope);

  DType activation() const { return qkv_.activation(); }  // the type of x

  // x: [T, hidden_size] of activation(); out: f32 [T, hidden_size].
  void Forward(Pass& pass, Tensor x, Tensor out) const;

 private:
  int64_t num_heads_ = 0;  // of this rank
  int64_t num_kv_heads_ = 0;
  int64_t head_dim_ = 0;
  float scale_ = 0;
  int32_t group_ = 0;  // index into the pass's cache groups
  int32_t layer_ = 0;  // index into the pass's KV layers
  const Rope* rope_ = nullptr;
  Linear qkv_;
  Linear output_;
  std::optional<RmsNorm> q_norm_;
  std::optional<RmsNorm> k_norm_;
};

}  // namespace tokamak::nn
