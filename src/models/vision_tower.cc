#include "models/vision_tower.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "models/fields.h"
#include "models/grid_tower.h"
#include "weights/reordered.h"

namespace tokamak {
namespace {

constexpr int32_t kMaxSide = 1 << 12;  // as for images; in pixels

// A hidden state of a model with this many layers, as Python counts.
int32_t HiddenState(const JsonReader& index, int32_t num_layers) {
  const auto i = static_cast<int32_t>(index.Int(-num_layers - 1, num_layers));
  return i < 0 ? num_layers + 1 + i : i;
}

// A class token has an embedding instead of a patch: it is added to its position's.
nn::OwnedTensor ReadPositions(const nn::Builder& b, const VisionTowerConfig& c) {
  const int64_t hidden = c.attention.hidden_size;
  const std::string meaning = fmt::format("(image_size {} / patch_size {})² + {}", c.image_size,
                                          c.patch_size, c.class_tokens());
  std::vector<float> values =
      b.ReadValues({(b / "position_embedding" / "weight").Find({c.num_tokens(), hidden}, meaning)});
  const std::vector<float> of_class =
      c.clip ? b.ReadValues({(b / "class_embedding").Find(Shape{hidden})}) : std::vector<float>();
  if (!b.ok()) return {};
  for (size_t i = 0; i < of_class.size(); ++i) values[i] += of_class[i];
  std::vector<float> ordered(values.begin(), values.begin() + c.class_tokens() * hidden);
  for (int32_t i = 0; i < c.grid() * c.grid(); ++i) {
    const auto row = values.begin() + (c.class_tokens() + c.PatchAt(i)) * hidden;
    ordered.insert(ordered.end(), row, row + hidden);
  }
  return b.Store(ordered, {c.num_tokens(), hidden});
}

}  // namespace

Activation ParseVisionActivation(ConfigReader& reader, const char* field, const char* absent) {
  const std::string name = reader.StringOr(field, absent);
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGelu;
  if (name == "silu") return Activation::kSilu;
  if (name != "quick_gelu") reader.Fail(field, "\"" + name + "\" is not supported");
  return Activation::kQuickGelu;
}

std::vector<int32_t> ParseFeatureLayers(ConfigReader& outer, int32_t num_layers, int32_t absent) {
  constexpr size_t kMost = 64;
  const JsonReader field = outer["vision_feature_layer"];
  if (!field.present()) return {num_layers + 1 + absent};
  if (!field.is_array()) return {HiddenState(field, num_layers)};
  std::vector<int32_t> layers;
  field.ForEach(kMost,
                [&](const JsonReader& index) { layers.push_back(HiddenState(index, num_layers)); });
  if (layers.empty()) {
    field.Bad("at least one layer");
    layers = {0};
  }
  return layers;
}

nn::Linear MakePatchEmbedding(const nn::Builder& b, const Shape& stored, bool bias) {
  nn::SourcePtr weight = (b / "weight").Find(stored);
  if (weight == nullptr) return {};
  nn::SourcePtr matrix = b.OrFail(AsMatrix(std::move(weight)));
  nn::OwnedTensor biases = bias ? (b / "bias").ReadVector(stored[0]) : nn::OwnedTensor();
  return nn::Linear(b.PackWeight({std::move(matrix)}, WeightUse::kLinear), std::move(biases));
}

void EmbedPatches(nn::Pass& pass, const nn::Linear& embedding, Tensor patches, Tensor h) {
  const ArenaScope scope(pass.arena);
  // Planning counts activations as f32, so it must find room for x in another type.
  Tensor x = pass.arena.Allocate(embedding.activation(), patches.shape);
  pass.ops.Run(Convert{.x = patches, .out = x}, pass.stream);
  embedding.Forward(pass, x, h);
}

float* UnfoldPatch(const Pixels& image, size_t top, size_t left, size_t size, float* out) {
  for (size_t row = 0; row < 3 * size; ++row) {  // of all channels
    const size_t channel = row / size, y = top + row % size;
    out = std::copy_n(image.values + (channel * image.height + y) * image.width + left, size, out);
  }
  return out;
}

VisionTowerConfig ParseVisionTower(ConfigReader& outer, const char* absent) {
  ConfigReader vision = outer.Part("vision_config");
  const std::string type = vision.StringOr("model_type", absent);
  const bool clip = type == "clip_vision_model";
  if (!clip && type != "siglip_vision_model") {
    vision.Fail("model_type", "\"" + type +
                                  "\" is not supported; supported are \"clip_vision_model\" and "
                                  "\"siglip_vision_model\"");
  }
  return ParseVisionFields(vision, clip);
}

VisionTowerConfig ParseVisionFields(ConfigReader& vision, bool clip) {
  VisionTowerConfig c;
  c.clip = clip;
  // The defaults of the reference's classes; published files leave fields out.
  vision.SetDefault("hidden_size", 768);
  vision.SetDefault("num_attention_heads", 12);
  c.attention = ParseMultiHeadAttention(vision, "hidden_size", "num_attention_heads");
  c.attention.qkv_bias = c.attention.output_bias = true;
  c.mlp = {.hidden_size = c.attention.hidden_size,
           .intermediate_size = vision.IntOr("intermediate_size", 3072, kIntermediateSizes),
           .activation = ParseVisionActivation(vision, "hidden_act",
                                               c.clip ? "quick_gelu" : "gelu_pytorch_tanh"),
           .bias = true};
  c.num_layers = vision.IntOr("num_hidden_layers", 12, Positive(10000));
  c.norm = {
      .eps = static_cast<float>(vision.NumberOr("layer_norm_eps", c.clip ? 1e-5 : 1e-6, {0, 1})),
      .layer_norm = true,
      .bias = true};
  c.image_size = vision.IntOr("image_size", 224, Positive(kMaxSide));
  c.patch_size = vision.IntOr("patch_size", c.clip ? 32 : 16, Positive(kMaxSide));
  if (c.patch_size > c.image_size) {
    vision.Fail("patch_size",
                fmt::format("{} is larger than image_size, {}", c.patch_size, c.image_size));
    c.patch_size = c.image_size;
  }
  vision.ExpectOrAbsent("num_channels", 3);
  // For training, for comparing images with texts, and for classifying them.
  vision.Ignore({"initializer_factor", "projection_dim", "vision_use_head", "vocab_size"});
  return c;
}

VisionTower::VisionTower(const nn::Builder& top, const VisionTowerConfig& config)
    : config_(config) {
  const VisionTowerConfig& c = config_;
  const bool old = (top / "vision_model.embeddings.position_embedding.weight").Has();
  const nn::Builder b = old ? top / "vision_model" : top;
  b.Needs({Capability::kConvert, Capability::kAddResidual});
  const int64_t hidden = c.attention.hidden_size;
  patch_embedding_ = MakePatchEmbedding(b / "embeddings.patch_embedding",
                                        {hidden, 3, c.patch_size, c.patch_size}, /*bias=*/!c.clip);
  positions_ = ReadPositions(b / "embeddings", c);
  if (c.clip) pre_norm_ = nn::Norm(b / "pre_layrnorm", hidden, c.norm);
  const bool all = c.square > 0;
  const int32_t used =
      all ? c.num_layers : *std::max_element(c.feature_layers.begin(), c.feature_layers.end());
  for (int32_t i = 0; i < used && b.ok(); ++i) {
    const nn::Builder at = b / "encoder.layers" / i;
    layers_.push_back({nn::Norm(at / "layer_norm1", hidden, c.norm),
                       std::make_unique<nn::Attention>(
                           at / "self_attn", c.attention, /*rope=*/nullptr,
                           nn::AttentionExtras{.causal = false, .names = {.output = "out_proj"}}),
                       nn::Norm(at / "layer_norm2", hidden, c.norm),
                       std::make_unique<nn::PlainMlp>(
                           at / "mlp", c.mlp, nn::PlainMlpNames{.up = "fc1", .down = "fc2"})});
  }
  for (int32_t i = used; i < c.num_layers; ++i) b.Skip(fmt::format("encoder.layers.{}.", i));
  if (all) {
    post_norm_ = nn::Norm(b / "post_layernorm", hidden, c.norm);
  } else {
    b.Skip("post_layernorm.");
  }
  b.Skip("head.");                    // SigLIP's pooling
  b.Skip("embeddings.position_ids");  // 0, 1, 2, ...
}

void VisionTower::Unfold(std::span<const float> tiles, std::span<float> patches) const {
  const auto side = static_cast<size_t>(config_.image_size);
  const auto patch = static_cast<size_t>(config_.patch_size);
  const auto grid = static_cast<size_t>(config_.grid());
  const auto width = static_cast<size_t>(config_.patch_values());
  CHECK(tiles.size() % (3 * side * side) == 0);
  CHECK(patches.size() ==
        tiles.size() / (3 * side * side) * static_cast<size_t>(config_.num_tokens()) * width);
  float* out = patches.data();
  for (size_t at = 0; at < tiles.size(); at += 3 * side * side) {
    const float* const tile = tiles.data() + at;
    for (int32_t i = 0; i < config_.class_tokens(); ++i) out = std::fill_n(out, width, 0.0f);
    for (size_t i = 0; i < grid * grid; ++i) {
      const auto index = static_cast<size_t>(config_.PatchAt(static_cast<int32_t>(i)));
      out = UnfoldPatch({tile, side, side}, index / grid * patch, index % grid * patch, patch, out);
    }
  }
}

void VisionTower::Embed(nn::Pass& pass, Tensor patches, Tensor h) const {
  const ArenaScope scope(pass.arena);
  pass.ops.Run(GatherRows{.source = positions_.tensor, .rows = pass.positions, .out = h},
               pass.stream);
  Tensor embedded = pass.arena.Allocate(DType::kF32, h.shape);
  EmbedPatches(pass, patch_embedding_, patches, embedded);
  pass.ops.Run(AddResidual{.x = embedded, .residual = h}, pass.stream);
  if (config_.clip) pre_norm_.Forward(pass, h, h);
}

void VisionTower::Forward(nn::Pass& pass, Tensor patches, Tensor features) const {
  const ArenaScope scope(pass.arena);
  const int64_t hidden = config_.attention.hidden_size;
  Residual h(pass, hidden);
  Embed(pass, patches, h.first());
  for (size_t state = 0; state <= layers_.size(); ++state) {
    for (size_t f = 0; f < config_.feature_layers.size(); ++f) {
      if (static_cast<size_t>(config_.feature_layers[f]) != state) continue;
      const auto first = static_cast<int64_t>(f) * hidden;
      h.Gather(pass.logit_rows, features.Cols(first, first + hidden));
    }
    if (state < layers_.size()) layers_[state].Forward(h);
  }
}

Tensor VisionTower::ForwardSquares(nn::Pass& pass, Tensor patches) const {
  const int64_t hidden = config_.attention.hidden_size;
  Residual h(pass, hidden);
  Embed(pass, patches, h.first());
  for (const PreNorm& layer : layers_) layer.Forward(h);
  return NormalizeSquares(pass, h, post_norm_, hidden, config_.square_patches(), DType::kF32);
}

}  // namespace tokamak
