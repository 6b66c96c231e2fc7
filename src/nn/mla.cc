#include "nn/mla.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "weights/reordered.h"
#include "weights/row_range.h"

namespace tokamak::nn {
namespace {

// For the norms of latents, whatever the configuration says about others.
constexpr NormConfig kNorm = {.eps = 1e-6f};
// The largest number of heads that the operations of ops/mla.h take.
constexpr int32_t kMaxHeads = 1024;

// The rows of `heads`, which are stored as [nope | rotated], with the rotated rows first.
SourcePtr RotatedFirst(SourcePtr source, const MlaConfig& c, IndexRange heads) {
  if (!source) return nullptr;
  std::vector<RowRun> runs;
  for (int64_t h = heads.begin; h < heads.end; ++h) {
    const int64_t begin = h * (c.nope_dim + c.rope_dim);
    runs.push_back({begin + c.nope_dim, begin + c.nope_dim + c.rope_dim});
    runs.push_back({begin, begin + c.nope_dim});
  }
  return PickRows(std::move(source), std::move(runs));
}

// From this many new positions of a sequence on, decompressing its keys and values is less work
// than attending to latents; 0: never.
int32_t DecompressFrom(const MlaConfig& c) {
  const int64_t saved = 2 * int64_t{c.kv_lora_rank} - c.nope_dim - c.value_dim;  // per pair
  const int64_t cost = int64_t{c.kv_lora_rank} * (c.nope_dim + c.value_dim);     // per key
  return saved > 0 ? static_cast<int32_t>(cost / saved + 1) : 0;
}

// Positions to decompress at once. Products of many rows are fast, and long sequences are merged
// rarely; other sublayers need as much memory for the tokens of a large step.
int32_t ChunkKeys(const MlaConfig& c, int64_t num_heads) {
  constexpr int64_t kMostBytes = 256 << 20, kMostKeys = 16384, kUnit = 256;
  const int64_t elements = c.rope_dim + c.kv_lora_rank + num_heads * (c.nope_dim + c.value_dim);
  const int64_t keys = kMostBytes / (2 * elements) / kUnit * kUnit;
  return static_cast<int32_t>(std::clamp(keys, kUnit, kMostKeys));
}

}  // namespace

MlaAttention::MlaAttention(const Builder& b, const MlaConfig& config, const Rope* rope)
    : Sublayer(b), config_(config), rope_(rope) {
  b.Needs({Capability::kMla, Capability::kConvert});
  if (config.num_heads > kMaxHeads) {
    b.Fail(InvalidArgument("{}: has {} heads; at most {} are supported", b.path(), config.num_heads,
                           kMaxHeads));
  }
  const int64_t values = config.value_dim;
  const int64_t block =
      (b / "o_proj" / "weight").BlockColumns(Shape{config.hidden_size, config.num_heads * values});
  const std::vector<HeadShard> ranks =
      b.ShardHeads(config.num_heads, config.num_heads, values, block);
  if (!b.ok()) return;
  heads_ = ranks[static_cast<size_t>(b.parallel().rank)].heads;
  ReadQkvA(b);
  kv_a_norm_ = Norm(b / "kv_a_layernorm", config.kv_lora_rank, kNorm);
  ReadHeads(b);
  output_ = Linear::Row(b / "o_proj", config.hidden_size, config.num_heads * values,
                        {heads_.begin * values, heads_.end * values}, config.bias);
  AddCacheLayer(b);
}

void MlaAttention::ReadQkvA(const Builder& b) {
  const MlaConfig& c = config_;
  const int64_t hidden = c.hidden_size, rank = c.kv_lora_rank;
  const std::string q_meaning =
      fmt::format("num_attention_heads {} × (qk_nope_head_dim {} + qk_rope_head_dim {})",
                  c.num_heads, c.nope_dim, c.rope_dim);
  const int64_t q_rows = c.num_heads * key_dim();
  std::vector<SourcePtr> parts;
  if (c.q_lora_rank > 0) {
    parts.push_back((b / "q_a_proj" / "weight").Find(Shape{c.q_lora_rank, hidden}, "q_lora_rank"));
    q_a_norm_ = Norm(b / "q_a_layernorm", c.q_lora_rank, kNorm);
    SourcePtr up = (b / "q_b_proj" / "weight").Find(Shape{q_rows, c.q_lora_rank}, q_meaning);
    q_b_proj_ = Linear(b.PackWeight({RotatedFirst(std::move(up), c, heads_)}, WeightUse::kLinear));
  } else {
    SourcePtr q = (b / "q_proj" / "weight").Find(Shape{q_rows, hidden}, q_meaning);
    parts.push_back(RotatedFirst(std::move(q), c, heads_));
  }
  const SourcePtr entry = (b / "kv_a_proj_with_mqa" / "weight")
                              .Find(Shape{entry_dim(), hidden}, "kv_lora_rank + qk_rope_head_dim");
  if (!b.ok()) return;
  parts.push_back(RowRange(entry, {rank, entry_dim()}));
  parts.push_back(RowRange(entry, {0, rank}));
  qkv_a_proj_ = Linear(b.PackWeight(std::move(parts), WeightUse::kLinear), ReadQkvABias(b));
}

OwnedTensor MlaAttention::ReadQkvABias(const Builder& b) const {
  const MlaConfig& c = config_;
  if (!c.bias) return {};
  // q_proj has no bias.
  std::vector<float> values(static_cast<size_t>(heads_.size() * key_dim()));
  if (c.q_lora_rank > 0) {
    SourcePtr q = (b / "q_a_proj" / "bias").Find(Shape{c.q_lora_rank}, "q_lora_rank");
    values = b.ReadValues({std::move(q)});
  }
  const SourcePtr stored = (b / "kv_a_proj_with_mqa" / "bias").Find(Shape{entry_dim()});
  const std::vector<float> entry = b.ReadValues({stored});
  if (!b.ok()) return {};
  values.insert(values.end(), entry.begin() + c.kv_lora_rank, entry.end());
  values.insert(values.end(), entry.begin(), entry.begin() + c.kv_lora_rank);
  return b.Store(values, Shape{static_cast<int64_t>(values.size())});
}

void MlaAttention::ReadHeads(const Builder& b) {
  const MlaConfig& c = config_;
  const int64_t rows = c.nope_dim + c.value_dim, rank = c.kv_lora_rank;
  // GGUF stores the weights of keys and values separately, and those of keys transposed.
  const Builder k_b = b / "k_b_proj" / "weight";
  const bool apart = k_b.Has();
  SourcePtr all_keys, all;
  if (apart) {
    all_keys = k_b.Find(Shape{c.num_heads, rank, c.nope_dim}, "qk_nope_head_dim");
    all = (b / "v_b_proj" / "weight").Find(Shape{c.num_heads, c.value_dim, rank}, "v_head_dim");
  } else {
    all = (b / "kv_b_proj" / "weight")
              .Find(Shape{c.num_heads * rows, rank},
                    fmt::format("num_attention_heads {} × (qk_nope_head_dim {} + v_head_dim {})",
                                c.num_heads, c.nope_dim, c.value_dim));
  }
  std::vector<std::vector<SourcePtr>> w_uk, w_uk_t, w_uv;
  const auto transposed = [&b](const SourcePtr& part) {
    return b.OrFail(Transposed(WithoutBlocks(part), 0, part->shape().rows()));
  };
  for (int64_t h = heads_.begin; h < heads_.end && b.ok(); ++h) {
    const int64_t begin = h * rows;
    const SourcePtr key = apart ? RowRange(all_keys, {h * rank, (h + 1) * rank})
                                : RowRange(all, {begin, begin + c.nope_dim});
    if (has(MlaForm::kAbsorbed)) w_uk_t.push_back({apart ? key : transposed(key)});
    if (c.form != MlaForm::kAbsorbed) w_uk.push_back({apart ? transposed(key) : key});
    w_uv.push_back({apart ? RowRange(all, {h * c.value_dim, (h + 1) * c.value_dim})
                          : RowRange(all, {begin + c.nope_dim, begin + rows})});
  }
  const auto pack = [&b](std::vector<std::vector<SourcePtr>> heads) {
    return heads.empty() ? nullptr : b.PackStack(std::move(heads), WeightUse::kHeads);
  };
  w_uk_ = pack(std::move(w_uk));
  w_uk_t_ = pack(std::move(w_uk_t));
  w_uv_ = pack(std::move(w_uv));
}

void MlaAttention::AddCacheLayer(const Builder& b) {
  const MlaConfig& c = config_;
  const auto heads = static_cast<int32_t>(heads_.size());
  KvLayerSpec layer = {.num_heads = heads,
                       .num_kv_heads = 1,
                       .head_dim = static_cast<int32_t>(entry_dim()),
                       .value_dim = c.kv_lora_rank,
                       .values_in_keys = true};
  if (c.form == MlaForm::kStandard) {
    layer = {.num_heads = heads,
             .num_kv_heads = heads,
             .head_dim = static_cast<int32_t>(key_dim()),
             .value_dim = c.value_dim};
  } else if (c.form != MlaForm::kAbsorbed) {
    layer.expansion = {.min_queries = c.form == MlaForm::kLatent ? 1 : DecompressFrom(c),
                       .nope_dim = c.nope_dim,
                       .value_dim = c.value_dim};
    if (c.form == MlaForm::kAuto && b.ops().capabilities().Has(Capability::kLatentScratch)) {
      layer.expansion.chunk_keys = ChunkKeys(c, heads);
    }
    expansion_ = layer.expansion;
  }
  layer_ = b.AddKvLayer(/*window=*/0, layer);
  group_ = b.KvGroup(layer_);
}

void MlaAttention::Project(Pass& pass, Tensor x, Tensor& q, Tensor& entry) const {
  const int64_t num_tokens = x.rows();
  Tensor down = pass.arena.Allocate(qkv_a_proj_.output(), {num_tokens, qkv_a_proj_.out_features()});
  qkv_a_proj_.Forward(pass, x, down);
  const int64_t split = down.cols() - entry_dim();
  q = down.Cols(0, split);
  entry = down.Cols(split, down.cols());
  if (config_.q_lora_rank > 0) {
    Tensor latent = pass.arena.Allocate(q_b_proj_.activation(), {num_tokens, split});
    q_a_norm_.Forward(pass, q, latent);
    q = pass.arena.Allocate(q_b_proj_.output(), {num_tokens, q_b_proj_.out_features()});
    q_b_proj_.Forward(pass, latent, q);
  }
  const Tensor latent = entry.Cols(config_.rope_dim, entry_dim());
  kv_a_norm_.Forward(pass, latent, latent);
}

void MlaAttention::ForwardShard(Pass& pass, const SublayerInput& in, Tensor out) const {
  const ArenaScope scope(pass.arena);
  Tensor q, entry;
  Project(pass, in.x, q, entry);
  // HeadLinear, and LatentAttention with scratch, write f32 or the type of w_uv's outputs; the
  // other forms write f32 alone.
  const bool may_round = config_.form == MlaForm::kAbsorbed || expansion_.chunk_keys > 0;
  const bool is_rounded = may_round && output_.activation() == w_uv_->output();
  Tensor attn_output = pass.arena.Allocate(is_rounded ? output_.activation() : DType::kF32,
                                           {in.x.rows(), heads_.size() * config_.value_dim});
  if (config_.form == MlaForm::kStandard) {
    AttendStandard(pass, q, entry, attn_output);
  } else {
    pass.ops.Run(RopeAndStore{.q = q,
                              .k = entry,
                              .v = {},
                              .positions = pass.positions,
                              .slot_mapping = pass.groups[static_cast<size_t>(group_)].slot_mapping,
                              .rope = &rope_->table(),
                              .cache = pass.kv_layers[static_cast<size_t>(layer_)],
                              .q_head_dim = static_cast<int32_t>(key_dim())},
                 pass.stream);
    if (has(MlaForm::kAbsorbed)) AttendAbsorbed(pass, q, attn_output);
    if (has(MlaForm::kLatent)) AttendLatent(pass, q, attn_output);
  }
  if (output_.activation() != attn_output.dtype) {
    Tensor rounded = pass.arena.Allocate(output_.activation(), attn_output.shape);
    pass.ops.Run(Convert{.x = attn_output, .out = rounded}, pass.stream);
    attn_output = rounded;
  }
  output_.Forward(pass, attn_output, out);
}

void MlaAttention::AttendStandard(Pass& pass, Tensor q, Tensor entry, Tensor attn_output) const {
  const MlaConfig& c = config_;
  const AttentionMetadata& group = pass.groups[static_cast<size_t>(group_)];
  const KvLayerView& cache = pass.kv_layers[static_cast<size_t>(layer_)];
  const HeadColumns latent = {entry, c.rope_dim, 0, c.kv_lora_rank};
  Tensor k = pass.arena.Allocate(DType::kF32, {q.rows(), heads_.size() * key_dim()});
  Tensor v = pass.arena.Allocate(DType::kF32, attn_output.shape);
  pass.ops.Run(
      HeadLinear{
          .x = latent, .weights = w_uk_.get(), .copied = {entry, 0, 0, c.rope_dim}, .out = k},
      pass.stream);
  pass.ops.Run(HeadLinear{.x = latent, .weights = w_uv_.get(), .copied = {}, .out = v},
               pass.stream);
  pass.ops.Run(RopeAndStore{.q = q,
                            .k = k,
                            .v = v,
                            .positions = pass.positions,
                            .slot_mapping = group.slot_mapping,
                            .rope = &rope_->table(),
                            .cache = cache},
               pass.stream);
  pass.ops.Run(tokamak::Attention{.q = q,
                                  .cache = cache,
                                  .plan = group.plan,
                                  .scale = c.scale,
                                  .sinks = {},
                                  .slopes = {},
                                  .out = attn_output,
                                  .output_lse = {}},
               pass.stream);
}

void MlaAttention::AttendAbsorbed(Pass& pass, Tensor q, Tensor attn_output) const {
  const MlaConfig& c = config_;
  const int64_t num_tokens = q.rows();
  const ArenaScope scope(pass.arena);
  const AttentionPlan* const plan = pass.groups[static_cast<size_t>(group_)].plan;
  Tensor queries =
      pass.arena.Allocate(w_uk_t_->output(), {num_tokens, heads_.size() * entry_dim()});
  Tensor latents =
      pass.arena.Allocate(w_uv_->activation(), {num_tokens, heads_.size() * c.kv_lora_rank});
  const auto [begin, end] = plan->AttendedRows(num_tokens);
  if (begin == end) return;
  const Tensor attended = q.Rows(begin, end);
  pass.ops.Run(HeadLinear{.x = {attended, c.rope_dim, key_dim(), c.nope_dim},
                          .weights = w_uk_t_.get(),
                          .copied = {attended, 0, key_dim(), c.rope_dim},
                          .out = queries.Rows(begin, end)},
               pass.stream);
  pass.ops.Run(tokamak::Attention{.q = queries,
                                  .cache = pass.kv_layers[static_cast<size_t>(layer_)],
                                  .plan = plan,
                                  .scale = c.scale,
                                  .sinks = {},
                                  .slopes = {},
                                  .out = latents,
                                  .output_lse = {}},
               pass.stream);
  pass.ops.Run(HeadLinear{.x = {latents.Rows(begin, end), 0, c.kv_lora_rank, c.kv_lora_rank},
                          .weights = w_uv_.get(),
                          .copied = {},
                          .out = attn_output.Rows(begin, end)},
               pass.stream);
}

void MlaAttention::AttendLatent(Pass& pass, Tensor q, Tensor attn_output) const {
  const ArenaScope scope(pass.arena);
  Tensor scratch;
  if (expansion_.chunk_keys > 0) {
    scratch = pass.arena.Allocate(
        DType::kI8, {LatentScratchBytes(expansion_, entry_dim(), heads_.size(), q.rows())});
  }
  pass.ops.Run(LatentAttention{.q = q,
                               .cache = pass.kv_layers[static_cast<size_t>(layer_)],
                               .plan = pass.groups[static_cast<size_t>(group_)].plan,
                               .w_uk = w_uk_.get(),
                               .w_uv = w_uv_.get(),
                               .scale = config_.scale,
                               .out = attn_output,
                               .scratch = scratch},
               pass.stream);
}

}  // namespace tokamak::nn
