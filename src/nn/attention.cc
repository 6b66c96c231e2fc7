#include "nn/attention.h"

#include <fmt/core.h>

#include <string>

#include "base/error.h"

namespace tokamak::nn {

Attention::Attention(const Builder& b, const AttentionConfig& config, const Rope* rope)
    : head_dim_(config.head_dim), scale_(config.scale), rope_(rope) {
  const ParallelContext& parallel = b.parallel();
  if (!parallel.Divides(config.num_heads) || !parallel.DividesKvHeads(config.num_kv_heads)) {
    b.Fail(InvalidArgument("{}: {} heads and {} KV heads cannot be shared by {} ranks", b.path(),
                           config.num_heads, config.num_kv_heads, parallel.size));
    return;
  }
  const IndexRange heads = parallel.Share(config.num_heads);
  const IndexRange kv_heads = parallel.KvHeads(config.num_kv_heads);
  num_heads_ = heads.size();
  num_kv_heads_ = kv_heads.size();

  const int64_t dim = head_dim_;
  const IndexRange q_rows{heads.begin * dim, heads.end * dim};
  const IndexRange kv_rows{kv_heads.begin * dim, kv_heads.end * dim};
  const std::string q_meaning = fmt::format("num_heads {} × head_dim {}", config.num_heads, dim);
  const std::string kv_meaning =
      fmt::format("num_kv_heads {} × head_dim {}", config.num_kv_heads, dim);
  qkv_ = Linear::Column(b,
                        {{"q_proj", config.num_heads * dim, q_rows, q_meaning},
                         {"k_proj", config.num_kv_heads * dim, kv_rows, kv_meaning},
                         {"v_proj", config.num_kv_heads * dim, kv_rows, kv_meaning}},
                        config.hidden_size, config.qkv_bias);
  output_ = Linear::Row(b / "o_proj", config.hidden_size, config.num_heads * dim, q_rows,
                        config.output_bias);
  if (config.qk_norm_eps) {
    q_norm_.emplace(b / "q_norm", dim, *config.qk_norm_eps);
    k_norm_.emplace(b / "k_norm", dim, *config.qk_norm_eps);
  }
  layer_ = b.AddKvLayer(config.window, static_cast<int32_t>(num_heads_),
                        static_cast<int32_t>(num_kv_heads_), config.head_dim);
  group_ = b.KvGroup(layer_);
}

void Attention::Forward(Pass& pass, Tensor x, Tensor out) const {
  const ArenaScope scope(pass.arena);
  const int64_t num_tokens = x.rows();
  const int64_t q_size = num_heads_ * head_dim_;
  const int64_t kv_size = num_kv_heads_ * head_dim_;
  const PassGroup& group = pass.groups[static_cast<size_t>(group_)];
  const KvLayerView& cache = pass.kv_layers[static_cast<size_t>(layer_)];

  Tensor qkv = pass.arena.Allocate(DType::kF32, {num_tokens, qkv_.out_features()});
  qkv_.Forward(pass, x, qkv);
  const Tensor q = qkv.Cols(0, q_size);
  pass.ops.Run(RopeAndStore{.q = q,
                            .k = qkv.Cols(q_size, q_size + kv_size),
                            .v = qkv.Cols(q_size + kv_size, q_size + 2 * kv_size),
                            .positions = pass.positions,
                            .slots = group.slots,
                            .q_norm = q_norm_ ? &q_norm_->weight() : nullptr,
                            .k_norm = k_norm_ ? &k_norm_->weight() : nullptr,
                            .norm_eps = q_norm_ ? q_norm_->eps() : 0.0f,
                            .rope = rope_ != nullptr ? &rope_->table() : nullptr,
                            .cache = cache},
               pass.stream);

  Tensor mixed = pass.arena.Allocate(output_.activation(), {num_tokens, q_size});
  pass.ops.Run(tokamak::Attention{.q = q,
                                  .cache = cache,
                                  .plan = group.plan,
                                  .scale = scale_,
                                  .out = mixed,
                                  .output_lse = {}},
               pass.stream);
  output_.Forward(pass, mixed, out);
}

}  // namespace tokamak::nn
