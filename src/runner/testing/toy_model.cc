#include "runner/testing/toy_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "nn/builder.h"
#include "ops/testing/memory_source.h"

namespace tokamak::testing {
namespace {

constexpr int32_t kHeads = 4;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kHeadDim = 8;
constexpr int32_t kHidden = 32;
constexpr int64_t kQ = kHeads * kHeadDim;
constexpr int64_t kKv = kKvHeads * kHeadDim;
constexpr int kLayers = 3;
constexpr int32_t kPatch = 4;
constexpr StateLayerSpec kState = {
    .conv_channels = kHidden, .conv_kernel = 4, .num_heads = 1, .key_dim = 1, .value_dim = kHidden};
constexpr int32_t kMaxPatches = 24;

template <typename T>
T OrDie(Result<T> result) {
  CHECK_MSG(result.ok(), result.status().ToString());
  return *std::move(result);
}

std::unique_ptr<PackedWeight> Weight(Ops& ops, const ToyConfig& config, WeightUse use, int64_t rows,
                                     int64_t cols, uint64_t salt) {
  std::mt19937_64 random(config.seed * 1000 + salt);
  std::normal_distribution<float> normal(0.0f, use == WeightUse::kTied ? 1.0f : 0.25f);
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (float& value : values) value = normal(random);
  if (use == WeightUse::kEmbedding && config.poison >= 0) {
    const auto row = values.begin() + config.poison * cols;
    std::fill(row, row + cols, std::numeric_limits<float>::quiet_NaN());
  }
  return OrDie(ops.PackWeight(
      {.parts = {MemorySource::Quantize("toy", config.dtype, Shape{rows, cols}, values)},
       .use = use}));
}

// A row is a product with a patch: its tower has no layers.
class ToyEncoder final : public ImageEncoder {
 public:
  ToyEncoder(Ops& ops, const ToyConfig& config)
      : weight_(Weight(ops, config, WeightUse::kLinear, kHidden, kPatch, 3)) {
    spec_ = {.patch_size = kPatch,
             .row_size = kHidden,
             .max_sequence_len = kMaxPatches,
             .max_image_tokens = kMaxPatches,
             .max_image_rows = kMaxPatches};
    spec_.cache.groups = {{.kind = CacheGroupKind::kFull, .window = 0}};
    spec_.cache.layers = {
        {.group = 0, .num_heads = kHeads, .num_kv_heads = kKvHeads, .head_dim = kHeadDim}};
  }
  Result<ImageLayout> Layout(const ImageView& image) const override {
    const int32_t patches = image.shape[0];
    CHECK(image.shape.size() == 2 && image.shape[1] == kPatch && patches <= kMaxPatches);
    ImageLayout layout{.sequence_lens = {patches}};
    for (int32_t i = 0; i < patches; ++i) {
      layout.positions.push_back(i);
      layout.rows.push_back(i);
    }
    return layout;
  }
  void Unfold(const ImageView& image, std::span<float> patches) const override {
    std::copy(image.values.begin(), image.values.end(), patches.begin());
  }
  Tensor Forward(nn::Pass& pass, Tensor patches) const override {
    const Tensor rows = pass.arena.Allocate(DType::kF32, Shape{pass.logit_rows.cols(), kHidden});
    ArenaScope scope(pass.arena);
    const Tensor all = pass.arena.Allocate(DType::kF32, Shape{patches.rows(), kHidden});
    pass.ops.Run(Linear{.x = patches, .weight = weight_.get(), .bias = {}, .out = all},
                 pass.stream);
    pass.ops.Run(GatherRows{.source = all, .rows = pass.logit_rows, .out = rows}, pass.stream);
    return rows;
  }

 private:
  std::unique_ptr<PackedWeight> weight_;
};

class ToyModel final : public Model {
 public:
  ToyModel(Ops& ops, const ToyConfig& config)
      : embedding_(Weight(ops, config, WeightUse::kEmbedding, config.vocab_size, kHidden, 1)),
        head_(Weight(ops, config, WeightUse::kLinear, config.vocab_size, kHidden, 2)),
        norm_(OrDie(nn::Upload(ops, std::vector<float>(kHidden, 1.5f), Shape{kHidden}))) {
    for (int i = 0; i < kLayers; ++i) {
      const uint64_t salt = 10 + static_cast<uint64_t>(i) * 2;
      layers_.push_back({Weight(ops, config, WeightUse::kLinear, kQ + 2 * kKv, kHidden, salt),
                         Weight(ops, config, WeightUse::kLinear, kHidden, kQ, salt + 1),
                         i == 1 && config.window > 0 ? 1 : 0});
    }
    MakeRope(ops, config.max_context);
    if (config.sees) {
      ToyConfig encoder = config;
      encoder.dtype = DType::kF32;
      set_image_encoder(std::make_unique<ToyEncoder>(ops, encoder));
    }
    ModelSpec spec;
    spec.architecture = "Toy";
    spec.vocab_size = config.vocab_size;
    spec.max_context = config.max_context;
    spec.cache.groups.push_back({.kind = CacheGroupKind::kFull, .window = 0});
    if (config.window > 0) {
      spec.cache.groups.push_back({.kind = CacheGroupKind::kWindow, .window = config.window});
    }
    for (const Layer& layer : layers_) {
      spec.cache.layers.push_back({.group = layer.group,
                                   .num_heads = kHeads,
                                   .num_kv_heads = kKvHeads,
                                   .head_dim = kHeadDim});
      spec.weight_bytes += layer.qkv->bytes() + layer.output->bytes();
    }
    if (config.keeps_state) spec.cache.state_layers.push_back(kState);
    spec.cache.bidirectional_images = config.bidirectional_images;
    set_spec(std::move(spec));
  }

  Tensor Forward(nn::Pass& pass) const override;
  Tensor Logits(nn::Pass& pass, Tensor hidden) const override {
    const Tensor logits = pass.arena.Allocate(DType::kF32, Shape{hidden.rows(), spec().vocab_size});
    pass.ops.Run(Linear{.x = hidden, .weight = head_.get(), .bias = {}, .out = logits},
                 pass.stream);
    return logits;
  }

 private:
  struct Layer {
    std::unique_ptr<PackedWeight> qkv;
    std::unique_ptr<PackedWeight> output;
    int32_t group = 0;
  };

  void MakeRope(Ops& ops, int32_t positions) {
    std::vector<float> table;
    for (int32_t p = 0; p < positions; ++p) {
      for (int part = 0; part < 2; ++part) {
        for (int i = 0; i < kHeadDim / 2; ++i) {
          const double angle = p * std::pow(100.0, -2.0 * i / kHeadDim);
          table.push_back(static_cast<float>(part == 0 ? std::cos(angle) : std::sin(angle)));
        }
      }
    }
    rope_storage_ = OrDie(nn::Upload(ops, table, Shape{positions, kHeadDim}));
    rope_ = {.cos_sin = rope_storage_.tensor, .rotary_dim = kHeadDim};
  }

  void Attend(nn::Pass& pass, const Layer& layer, size_t index, Tensor x, Tensor out) const;
  bool keeps_state() const { return !spec().cache.state_layers.empty(); }

  std::unique_ptr<PackedWeight> embedding_;
  std::unique_ptr<PackedWeight> head_;
  nn::OwnedTensor norm_;
  nn::OwnedTensor rope_storage_;
  RopeTable rope_;
  std::vector<Layer> layers_;
};

void ToyModel::Attend(nn::Pass& pass, const Layer& layer, size_t index, Tensor x,
                      Tensor out) const {
  ArenaScope scope(pass.arena);
  const int64_t num_tokens = pass.num_tokens();
  const Tensor qkv = pass.arena.Allocate(DType::kF32, Shape{num_tokens, kQ + 2 * kKv});
  pass.ops.Run(Linear{.x = x, .weight = layer.qkv.get(), .bias = {}, .out = qkv}, pass.stream);
  const Tensor q = qkv.Cols(0, kQ);
  const nn::AttentionMetadata& group = pass.groups[static_cast<size_t>(layer.group)];
  const KvLayerView& cache = pass.kv_layers[index];
  pass.ops.Run(RopeAndStore{.q = q,
                            .k = qkv.Cols(kQ, kQ + kKv),
                            .v = qkv.Cols(kQ + kKv, kQ + 2 * kKv),
                            .positions = pass.positions,
                            .slot_mapping = group.slot_mapping,
                            .rope = &rope_,
                            .cache = cache},
               pass.stream);
  const Tensor attended = pass.arena.Allocate(layer.output->activation(), Shape{num_tokens, kQ});
  pass.ops.Run(Attention{.q = q,
                         .cache = cache,
                         .plan = group.plan,
                         .scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim)),
                         .sinks = {},
                         .slopes = {},
                         .out = attended,
                         .output_lse = {}},
               pass.stream);
  pass.ops.Run(Linear{.x = attended, .weight = layer.output.get(), .bias = {}, .out = out},
               pass.stream);
}

// A decaying sum of all inputs, and weighted recent inputs, of each channel.
void Accumulate(const StateLayerView& state, const StateBatch& batch, Tensor x, Tensor out) {
  constexpr int32_t kPast = kState.conv_kernel - 1;
  if (x.data == nullptr) return;  // a counting pass
  for (int32_t s = 0; s < batch.num_seqs(); ++s) {
    const auto i = static_cast<size_t>(s);
    const int32_t begin = batch.query_start_loc[i], end = batch.query_start_loc[i + 1];
    if (batch.seq_lens[i] == 0) continue;
    const int32_t slot = batch.slots.Row<int32_t>(0)[s];
    float* const past = state.Conv(slot);
    float* const sums = state.Matrix(slot);
    if (batch.seq_lens[i] == end - begin) {
      std::fill_n(past, kState.ConvElements(), 0.0f);
      std::fill_n(sums, kState.MatrixElements(), 0.0f);
    }
    for (int32_t t = begin; t < end; ++t) {
      const float* const in = x.Row<float>(t);
      for (int32_t channel = 0; channel < kHidden; ++channel) {
        sums[channel] = 0.9f * sums[channel] + in[channel];
        float value = 0.3f * sums[channel];
        for (int32_t p = 0; p < kPast; ++p) {
          value += static_cast<float>(p + 1) * past[p * kHidden + channel];
        }
        out.Row<float>(t)[channel] = value;
      }
      std::copy(past + kHidden, past + kPast * kHidden, past);
      std::copy_n(in, kHidden, past + (kPast - 1) * kHidden);
    }
  }
}

Tensor ToyModel::Forward(nn::Pass& pass) const {
  const int64_t num_tokens = pass.num_tokens();
  const Tensor hidden =
      pass.arena.Allocate(head_->activation(), Shape{pass.logit_rows.cols(), kHidden});
  ArenaScope scope(pass.arena);
  const Tensor residual = pass.arena.Allocate(DType::kF32, Shape{num_tokens, kHidden});
  const Tensor x = pass.arena.Allocate(head_->activation(), Shape{num_tokens, kHidden});
  const Tensor delta = pass.arena.Allocate(DType::kF32, Shape{num_tokens, kHidden});
  pass.ops.Run(Embed{.ids = pass.token_ids, .table = embedding_.get(), .out = residual},
               pass.stream);
  if (pass.image_from.cols() > 0) {
    pass.ops.Run(CopyRows{.source = pass.image_rows,
                          .from = pass.image_from,
                          .to = pass.image_to,
                          .out = residual},
                 pass.stream);
  }
  const Tensor* add = nullptr;
  const size_t num_layers = layers_.size() + (keeps_state() ? 1 : 0);
  for (size_t i = 0; i <= num_layers; ++i) {
    pass.ops.Run(
        AddRmsNorm{.x = add, .residual = residual, .weight = norm_.tensor, .eps = 1e-5f, .out = x},
        pass.stream);
    if (i == num_layers) break;
    if (i < layers_.size()) {
      Attend(pass, layers_[i], i, x, delta);
    } else {
      Accumulate(pass.state_layers[0], pass.states, x, delta);
    }
    add = &delta;
  }
  pass.ops.Run(GatherRows{.source = x, .rows = pass.logit_rows, .out = hidden}, pass.stream);
  return hidden;
}

}  // namespace

std::unique_ptr<Model> MakeToyModel(Ops& ops, const ToyConfig& config) {
  return std::make_unique<ToyModel>(ops, config);
}

}  // namespace tokamak::testing
