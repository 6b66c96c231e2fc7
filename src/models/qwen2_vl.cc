// Qwen2-VL and Qwen2.5-VL: images of about their own size and aspect ratio (models/grid_tower.h).
// In Qwen2.5-VL, most layers of the tower attend within windows. Papers: arXiv:2409.12191,
// arXiv:2502.13923. References: transformers, models/qwen2_vl and models/qwen2_5_vl.
#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "models/grid_tower.h"
#include "models/layer.h"
#include "models/vision_tower.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mlp.h"

namespace tokamak {
namespace {

struct TowerConfig {
  GridTowerConfig grid;
  bool newer = false;          // Qwen2.5-VL
  std::vector<bool> windowed;  // per layer
  nn::NormConfig norm;
  nn::MlpShape mlp;
};

void ParseWindows(ConfigReader& vision, TowerConfig& c) {
  GridTowerConfig& grid = c.grid;
  const int32_t size = vision.IntOr("window_size", 112, Positive(1 << 12));
  grid.window = size / grid.merge_size / grid.patch_size;
  if (grid.window == 0) {
    vision.Fail("window_size", fmt::format("{} is less than spatial_merge_size {} · patch_size {}",
                                           size, grid.merge_size, grid.patch_size));
    grid.window = 1;
  }
  constexpr const char* kWhole = "fullatt_block_indexes";
  std::vector<int32_t> whole = {7, 15, 23, 31};
  if (vision.Has(kWhole)) whole = vision.Ints(kWhole, NonNegative());
  c.windowed.assign(c.windowed.size(), true);
  for (const int32_t i : whole) {
    if (static_cast<size_t>(i) < c.windowed.size()) c.windowed[static_cast<size_t>(i)] = false;
  }
}

TowerConfig ParseTower(ConfigReader& outer, bool newer, int32_t text_size) {
  ConfigReader vision = OpenVisionConfig(outer, newer ? "qwen2_5_vl" : "qwen2_vl");
  TowerConfig c;
  c.newer = newer;
  const char* const size = newer ? "hidden_size" : "embed_dim";
  vision.SetDefault(size, newer ? 3584 : 1280);
  vision.SetDefault("num_heads", 16);
  vision.SetDefault("depth", 32);
  vision.SetDefault("patch_size", 14);
  c.grid = ParseGridTower(vision, size, "num_heads");
  c.grid.attention.qkv_bias = c.grid.attention.output_bias = true;
  const int64_t hidden = c.grid.attention.hidden_size;
  c.mlp = {.hidden_size = hidden,
           .intermediate_size = newer ? vision.IntOr("intermediate_size", 3420, kIntermediateSizes)
                                      : hidden * vision.IntOr("mlp_ratio", 4, Positive(64)),
           .activation = ParseVisionActivation(vision, "hidden_act", newer ? "silu" : "quick_gelu"),
           .bias = true};
  c.norm = {.eps = 1e-6f, .layer_norm = !newer, .bias = !newer};
  c.windowed.resize(static_cast<size_t>(c.grid.num_layers));
  if (newer) ParseWindows(vision, c);
  ExpectRowSize(vision, newer ? "out_hidden_size" : "hidden_size", 3584, text_size);
  c.grid.row_size = text_size;
  vision.ExpectOrAbsent("in_chans", 3);
  vision.Ignore({"spatial_patch_size"});
  if (newer) vision.Ignore({"tokens_per_second"});  // of videos
  return c;
}

struct Config {
  DecoderConfig text;
  TowerConfig vision;
  int32_t image_token = 0;
};

Result<Config> ParseConfig(ConfigReader reader, bool newer) {
  Config c;
  if (reader.Has("text_config")) {
    ConfigReader text = OpenTextConfig(reader, newer ? "qwen2_5_vl_text" : "qwen2_vl_text");
    c.text = ParseQwen2VlText(text);
  } else {
    c.text = ParseQwen2VlText(reader);
  }
  ParseEitherTie(reader, c.text);
  c.vision = ParseTower(reader, newer, c.text.hidden_size);
  c.image_token = ParseQwenImageToken(reader, c.text);
  return reader.Finish(std::move(c));
}

PreNorm MakeLayer(const nn::Builder& b, const TowerConfig& c, bool windowed) {
  const nn::AttentionExtras extras = {
      .causal = false,
      .image_scope = windowed ? nn::ImageScope::kWindow : nn::ImageScope::kSequence,
      .names = {.qkv = "qkv", .output = "proj"}};
  const int64_t hidden = c.grid.attention.hidden_size;
  PreNorm layer = {nn::Norm(b / "norm1", hidden, c.norm),
                   std::make_unique<nn::Attention>(b / "attn", c.grid.attention, nullptr, extras),
                   nn::Norm(b / "norm2", hidden, c.norm), nullptr};
  if (c.newer) {
    layer.feed_forward = std::make_unique<nn::Mlp>(b / "mlp", c.mlp);
  } else {
    layer.feed_forward = std::make_unique<nn::PlainMlp>(
        b / "mlp", c.mlp, nn::PlainMlpNames{.up = "fc1", .down = "fc2"});
  }
  return layer;
}

class QwenVlEncoder final : public GridTower {
 public:
  QwenVlEncoder(const nn::Builder& b, const TowerConfig& c, nn::Rope rope)
      : GridTower(c.grid, std::move(rope)),
        patch_embedding_(
            MakePatchEmbedding(b / "patch_embed.proj", c.grid.PatchShape(), /*bias=*/false)) {
    b.Needs(Capability::kConvert);
    for (size_t i = 0; i < c.windowed.size() && b.ok(); ++i) {
      layers_.push_back(MakeLayer(b / "blocks" / static_cast<int64_t>(i), c, c.windowed[i]));
    }
    merger_ = PatchMerger(b / "merger", {.norm = "ln_q", .up = "mlp.0", .down = "mlp.2"}, c.grid,
                          c.norm, PatchMerger::NormOf::kPatch, c.grid.row_size);
  }

 private:
  void Run(nn::Pass& pass, Tensor patches, Residual& h, Tensor rows) const override {
    EmbedPatches(pass, patch_embedding_, patches, h.first());
    for (const PreNorm& layer : layers_) layer.Forward(h);
    merger_.Forward(pass, h, rows);
  }

  const nn::Linear patch_embedding_;
  std::vector<PreNorm> layers_;
  PatchMerger merger_;
};

Result<std::unique_ptr<Model>> Create(ConfigReader config, nn::WeightLoad& load,
                                      const LoadOptions& options, bool newer) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config), newer));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(c.text, load, options));
  RETURN_IF_ERROR(AddGridTower<QwenVlEncoder>(*model, load, options, c.image_token, c.vision));
  return model;
}

}  // namespace

Result<std::unique_ptr<Model>> CreateQwen2Vl(ConfigReader config, nn::WeightLoad& load,
                                             const LoadOptions& options) {
  return Create(std::move(config), load, options, /*newer=*/false);
}

Result<std::unique_ptr<Model>> CreateQwen25Vl(ConfigReader config, nn::WeightLoad& load,
                                              const LoadOptions& options) {
  return Create(std::move(config), load, options, /*newer=*/true);
}

}  // namespace tokamak
