#include "nn/attention.h"

#include <fmt/core.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "nn/alibi.h"

namespace tokamak::nn {
Attention::Attention(const Builder& b, const AttentionConfig& config, const Rope* rope,
                     const AttentionExtras& extras)
    : Sublayer(b),
      head_dim_(config.head_dim),
      scale_(config.scale),
      rope_(rope),
      whole_norm_(extras.whole_qk_norm),
      softcap_(extras.softcap),
      clip_qkv_(extras.clip_qkv),
      output_gate_(extras.output_gate) {
  if (softcap_ > 0) b.Needs(Capability::kAttentionSoftcap);
  if (extras.sinks) b.Needs(Capability::kSinks);
  if (!extras.causal) b.Needs(Capability::kNonCausal);
  if (extras.alibi_bias_max > 0) b.Needs(Capability::kAlibi);
  if (clip_qkv_ > 0) b.Needs(Capability::kClamp);
  if (output_gate_) b.Needs(Capability::kGateOutput);
  const int64_t dim = head_dim_;
  const int64_t block = (b / extras.names.output / "weight")
                            .BlockColumns(Shape{config.hidden_size, config.num_heads * dim});
  const std::vector<HeadShard> ranks =
      b.ShardHeads(config.num_heads, config.num_kv_heads, dim, block);
  if (!b.ok()) return;
  const auto [heads, kv_heads] = ranks[static_cast<size_t>(b.parallel().rank)];
  num_heads_ = heads.size();
  num_kv_heads_ = kv_heads.size();
  const IndexRange q_rows{heads.begin * dim, heads.end * dim};
  const IndexRange kv_rows{kv_heads.begin * dim, kv_heads.end * dim};
  const std::string q_meaning = fmt::format("num_heads {} × {}head_dim {}", config.num_heads,
                                            output_gate_ ? "2 × " : "", dim);
  const std::string kv_meaning =
      fmt::format("num_kv_heads {} × head_dim {}", config.num_kv_heads, dim);
  const std::vector<Linear::Output> outputs = {
      {extras.names.q, config.num_heads * dim * (output_gate_ ? 2 : 1), q_rows, q_meaning,
       output_gate_ ? QueriesThenGates(heads, dim) : std::vector<RowRun>()},
      {extras.names.k, config.num_kv_heads * dim, kv_rows, kv_meaning},
      {extras.names.v, config.num_kv_heads * dim, kv_rows, kv_meaning}};
  qkv_ = extras.names.qkv.empty() ? Linear::Column(b, outputs, config.hidden_size, config.qkv_bias)
                                  : Linear::MergedColumn(b / extras.names.qkv, outputs,
                                                         config.hidden_size, config.qkv_bias);
  output_ = Linear::Row(b / extras.names.output, config.hidden_size, config.num_heads * dim, q_rows,
                        config.output_bias);
  if (extras.qk_norm) {
    const int64_t q_size = whole_norm_ ? config.num_heads * dim : dim;
    const int64_t k_size = whole_norm_ ? config.num_kv_heads * dim : dim;
    q_norm_.emplace(b / "q_norm", q_size, *extras.qk_norm);
    k_norm_.emplace(b / "k_norm", k_size, *extras.qk_norm);
  }
  if (whole_norm_) {
    rank_ = b.parallel().rank;
    for (const HeadShard& rank : ranks) {
      q_columns_.push_back({rank.heads.begin * dim, rank.heads.end * dim});
      k_columns_.push_back({rank.kv_heads.begin * dim, rank.kv_heads.end * dim});
    }
  }
  if (extras.sinks) {
    SourcePtr all = (b / "sinks").Find(Shape{config.num_heads}, "num_heads");
    sinks_ = b.ReadVectors({b.Columns(std::move(all), heads)});
  }
  if (extras.alibi_bias_max > 0) {
    const std::vector<float> all = AlibiSlopes(config.num_heads, extras.alibi_bias_max);
    slopes_ = b.Store({all.begin() + heads.begin, all.begin() + heads.end}, Shape{num_heads_});
  }
  layer_ = b.AddKvLayer(config.window, {.num_heads = static_cast<int32_t>(num_heads_),
                                        .num_kv_heads = static_cast<int32_t>(num_kv_heads_),
                                        .head_dim = config.head_dim,
                                        .causal = extras.causal,
                                        .image_scope = extras.image_scope});
  group_ = b.KvGroup(layer_);
}

std::vector<RowRun> Attention::QueriesThenGates(IndexRange heads, int64_t dim) {
  std::vector<RowRun> runs;
  for (const int64_t first : {int64_t{0}, dim}) {
    for (int64_t h = heads.begin; h < heads.end; ++h) {
      runs.push_back({2 * h * dim + first, 2 * h * dim + first + dim});
    }
  }
  return runs;
}

void Attention::ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const {
  const ArenaScope scope(pass.arena);
  const int64_t num_tokens = in.x.rows();
  const int64_t q_size = num_heads_ * head_dim_;
  const int64_t kv_size = num_kv_heads_ * head_dim_;
  const AttentionMetadata& group = pass.groups[static_cast<size_t>(group_)];
  const KvLayerView& cache = pass.kv_layers[static_cast<size_t>(layer_)];

  Tensor qkv = pass.arena.Allocate(qkv_.output(), {num_tokens, qkv_.out_features()});
  qkv_.Forward(pass, in.x, qkv);
  if (clip_qkv_ > 0) pass.ops.Run(Clamp{.x = qkv, .limit = clip_qkv_}, pass.stream);
  Tensor q = qkv.Cols(0, q_size);
  const int64_t first_key = output_gate_ ? 2 * q_size : q_size;
  Tensor k = qkv.Cols(first_key, first_key + kv_size);
  if (whole_norm_) NormalizeWhole(pass, q, k);
  const bool by_head = q_norm_ && !whole_norm_;
  const RopeTable* const own_rope = rope_ != nullptr ? &rope_->table() : nullptr;
  pass.ops.Run(RopeAndStore{.q = q,
                            .k = k,
                            .v = qkv.Cols(first_key + kv_size, first_key + 2 * kv_size),
                            .positions = pass.token_rope ? pass.token_indices : pass.positions,
                            .slot_mapping = group.slot_mapping,
                            .q_norm = by_head ? &q_norm_->weight() : nullptr,
                            .k_norm = by_head ? &k_norm_->weight() : nullptr,
                            .norm_eps = by_head ? q_norm_->eps() : 0.0f,
                            .rope = pass.token_rope ? pass.token_rope : own_rope,
                            .cache = cache},
               pass.stream);

  Tensor attn_output =
      pass.arena.Allocate(output_gate_ ? qkv.dtype : output_.activation(), {num_tokens, q_size});
  pass.ops.Run(tokamak::Attention{.q = q,
                                  .cache = cache,
                                  .plan = group.plan,
                                  .scale = scale_,
                                  .softcap = softcap_,
                                  .sinks = sinks_.tensor,
                                  .slopes = slopes_.tensor,
                                  .out = attn_output,
                                  .output_lse = {}},
               pass.stream);
  if (output_gate_) {
    const Tensor ungated = attn_output;
    attn_output = pass.arena.Allocate(output_.activation(), ungated.shape);
    pass.ops.Run(GateOutput{.x = ungated, .gate = qkv.Cols(q_size, 2 * q_size), .out = attn_output},
                 pass.stream);
  }
  output_.Forward(pass, attn_output, out);
}

void Attention::NormalizeWhole(Pass& pass, Tensor& q, Tensor& k) const {
  const auto normalize = [&](const Norm& norm, const std::vector<IndexRange>& columns, Tensor& x) {
    Tensor all = x;
    if (columns.size() > 1) {
      all = pass.arena.Allocate(x.dtype, {x.rows(), columns.back().end});
      pass.ops.Run(AllGather{.x = x, .out = all, .columns = columns}, pass.stream);
    }
    Tensor normalized = pass.arena.Allocate(all.dtype, all.shape);
    norm.Forward(pass, all, normalized);
    const IndexRange& own = columns[static_cast<size_t>(rank_)];
    x = normalized.Cols(own.begin, own.end);
  };
  normalize(*q_norm_, q_columns_, q);
  normalize(*k_norm_, k_columns_, k);
}

}  // namespace tokamak::nn
