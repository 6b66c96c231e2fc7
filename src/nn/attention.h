// Multi-head attention with grouped keys and values (arXiv:2305.13245) over the paged cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pass.h"
#include "nn/rope.h"
#include "nn/sublayer.h"

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
};

// A checkpoint's names for the projections, relative to the layer's name.
struct AttentionNames {
  std::string_view q = "q_proj", k = "k_proj", v = "v_proj";
  std::string_view qkv = {};  // all three, stored as one weight
  std::string_view output = "o_proj";
};

// Parts and variations that only some families have.
struct AttentionExtras {
  std::optional<NormConfig> qk_norm = {};  // of each head of queries and keys: q_norm, k_norm
  bool whole_qk_norm = false;              // normalizes all heads together instead
  float softcap = 0;                       // of the scores; 0: none
  bool sinks = false;                      // each head has an extra score without a value
  float alibi_bias_max = 0;                // > 0: ALiBi (nn/alibi.h)
  float clip_qkv = 0;                      // > 0: clamps q, k and v to ± this
  bool causal = true;                      // false: a query sees its whole sequence
  // q_proj also gives a gate for each head, behind its query. Each element of a head's output is
  // multiplied by the sigmoid of its gate's. arXiv:2505.06708.
  bool output_gate = false;
  ImageScope image_scope = ImageScope::kSequence;  // as in KvLayerSpec
  AttentionNames names = {};
};

class Attention final : public Sublayer {
 public:
  Attention() = default;
  // Reads the projections (and q_norm, k_norm, sinks) below b and adds a layer to the load's cache
  // layout. `rope` must outlive this; null: no rotation.
  Attention(const Builder& b, const AttentionConfig& config, const Rope* rope,
            const AttentionExtras& extras = {});

  DType activation() const override { return qkv_.activation(); }
  DType output() const override { return output_.output(); }
  void ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const override;

 private:
  // Row runs of q_proj with gates: this rank's queries, then their gates.
  static std::vector<RowRun> QueriesThenGates(IndexRange heads, int64_t dim);
  // Normalizes q [T, heads · head_dim] and k over all heads together, those of all ranks.
  void NormalizeWhole(Pass& pass, Tensor& q, Tensor& k) const;

  int64_t num_heads_ = 0;  // of this rank
  int64_t num_kv_heads_ = 0;
  int64_t head_dim_ = 0;
  float scale_ = 0;
  int32_t group_ = 0;  // index into the pass's cache groups
  int32_t layer_ = 0;  // index into the pass's KV layers
  const Rope* rope_ = nullptr;
  Linear qkv_;
  Linear output_;
  std::optional<Norm> q_norm_;
  std::optional<Norm> k_norm_;
  bool whole_norm_ = false;
  // With a whole norm: each rank's columns of the queries and keys of all heads.
  std::vector<IndexRange> q_columns_, k_columns_;
  int32_t rank_ = 0;
  float softcap_ = 0;
  float clip_qkv_ = 0;
  bool output_gate_ = false;
  OwnedTensor sinks_;   // f32 [num_heads], or empty
  OwnedTensor slopes_;  // f32 [num_heads], or empty
};

}  // namespace tokamak::nn
