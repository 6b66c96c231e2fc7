// Qwen3-VL, its MoE models, and Qwen3.5: a tower with learned positions, which are interpolated to
// an image's grid (models/grid_tower.h). But in Qwen3.5, features of some of its layers are added
// to the text model's hidden states after the first layers (DecoderConfig::deepstack_layers).
// Report: arXiv:2511.21631; DeepStack: arXiv:2406.04334. References: transformers, models/qwen3_vl,
// models/qwen3_vl_moe and models/qwen3_5.
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "models/grid_tower.h"
#include "models/layer.h"
#include "models/position_table.h"
#include "models/vision_tower.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mlp.h"

namespace tokamak {
namespace {

constexpr nn::NormConfig kNorm = {.eps = 1e-6f, .layer_norm = true, .bias = true};

struct TowerConfig {
  GridTowerConfig grid;
  int32_t position_side = 0;  // of the square grid of learned positions
  nn::MlpShape mlp;
  std::vector<int32_t> feature_layers;  // ascending; row parts behind the first are of these
};

int32_t ParsePositionSide(ConfigReader& vision) {
  constexpr const char* kName = "num_position_embeddings";
  const int32_t count = vision.IntOr(kName, 2304, Positive(1 << 24));
  const auto side = static_cast<int32_t>(std::lround(std::sqrt(count)));
  if (side * side != count) {
    vision.Fail(kName, fmt::format("is {}, which is not the square of a number", count));
  }
  return side;
}

// A class of models with this tower.
struct Variant {
  const char* type;  // model_type
  DecoderConfig (*parse_text)(ConfigReader& text);
  bool deepstack = true;
};

std::vector<int32_t> ParseFeatureLayers(ConfigReader& vision, int32_t num_layers,
                                        const DecoderConfig& text) {
  constexpr const char* kName = "deepstack_visual_indexes";
  std::vector<int32_t> layers = {8, 16, 24};
  if (vision.Has(kName)) layers = vision.Ints(kName, NonNegative());
  int32_t least = 0;
  for (const int32_t layer : layers) {
    if (layer < least || layer >= num_layers) {
      vision.Fail(kName,
                  fmt::format("must name some of the {} layers in ascending order", num_layers));
      return {};
    }
    least = layer + 1;
  }
  if (layers.size() > text.layers.size()) {
    vision.Fail(kName, fmt::format("has {} layers, but the text model has only {}", layers.size(),
                                   text.layers.size()));
    return {};
  }
  return layers;
}

TowerConfig ParseTower(ConfigReader& outer, const Variant& variant, const DecoderConfig& text) {
  ConfigReader vision = OpenVisionConfig(outer, variant.type);
  // The defaults of the reference's class.
  vision.SetDefault("hidden_size", 1152);
  vision.SetDefault("num_heads", 16);
  vision.SetDefault("depth", 27);
  vision.SetDefault("patch_size", 16);
  TowerConfig c;
  c.grid = ParseGridTower(vision, "hidden_size", "num_heads");
  c.grid.attention.qkv_bias = c.grid.attention.output_bias = true;
  c.position_side = ParsePositionSide(vision);
  c.mlp = {.hidden_size = c.grid.attention.hidden_size,
           .intermediate_size = vision.IntOr("intermediate_size", 4304, kIntermediateSizes),
           .activation = ParseVisionActivation(vision, "hidden_act", "gelu_pytorch_tanh"),
           .bias = true};
  if (variant.deepstack) {
    c.feature_layers = ParseFeatureLayers(vision, c.grid.num_layers, text);
  } else if (vision.Has("deepstack_visual_indexes") &&
             !vision.Ints("deepstack_visual_indexes", NonNegative()).empty()) {
    vision.Fail("deepstack_visual_indexes", "must be empty for this architecture");
  }
  ExpectRowSize(vision, "out_hidden_size", 3584, text.hidden_size);
  c.grid.row_size = text.hidden_size * (1 + static_cast<int32_t>(c.feature_layers.size()));
  return c;
}

struct Config {
  DecoderConfig text;
  TowerConfig vision;
  int32_t image_token = 0;
};

Result<Config> ParseConfig(ConfigReader reader, const Variant& variant) {
  Config c;
  ConfigReader text = OpenTextConfig(reader, variant.type + std::string("_text"));
  c.text = variant.parse_text(text);
  ParseEitherTie(reader, c.text);
  c.vision = ParseTower(reader, variant, c.text);
  c.text.deepstack_layers = static_cast<int32_t>(c.vision.feature_layers.size());
  c.image_token = ParseQwenImageToken(reader, c.text);
  return reader.Finish(std::move(c));
}

class Qwen3VlEncoder final : public GridTower {
 public:
  Qwen3VlEncoder(const nn::Builder& b, const TowerConfig& c, nn::Rope rope)
      : GridTower(c.grid, std::move(rope),
                  PositionTable(b / "pos_embed", c.position_side, c.grid.attention.hidden_size,
                                Interpolation::kBilinear)),
        text_size_(c.grid.row_size / (1 + static_cast<int64_t>(c.feature_layers.size()))),
        feature_layers_(c.feature_layers),
        patch_embedding_(
            MakePatchEmbedding(b / "patch_embed.proj", c.grid.PatchShape(), /*bias=*/true)) {
    b.Needs(Capability::kConvert);
    const int64_t hidden = c.grid.attention.hidden_size;
    for (int32_t i = 0; i < c.grid.num_layers && b.ok(); ++i) {
      const nn::Builder at = b / "blocks" / i;
      layers_.push_back(
          {nn::Norm(at / "norm1", hidden, kNorm),
           std::make_unique<nn::Attention>(
               at / "attn", c.grid.attention, /*rope=*/nullptr,
               nn::AttentionExtras{.causal = false, .names = {.qkv = "qkv", .output = "proj"}}),
           nn::Norm(at / "norm2", hidden, kNorm),
           std::make_unique<nn::PlainMlp>(
               at / "mlp", c.mlp, nn::PlainMlpNames{.up = "linear_fc1", .down = "linear_fc2"})});
    }
    const auto merger = [&](const nn::Builder& at, PatchMerger::NormOf norm_of) {
      return PatchMerger(at, {.norm = "norm", .up = "linear_fc1", .down = "linear_fc2"}, c.grid,
                         kNorm, norm_of, text_size_);
    };
    merger_ = merger(b / "merger", PatchMerger::NormOf::kPatch);
    for (size_t i = 0; i < feature_layers_.size() && b.ok(); ++i) {
      feature_mergers_.push_back(merger(b / "deepstack_merger_list" / static_cast<int64_t>(i),
                                        PatchMerger::NormOf::kSquare));
    }
  }

 private:
  void Run(nn::Pass& pass, Tensor patches, Residual& h, Tensor rows) const override {
    Embed(pass, patches, h.first());
    size_t features = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].Forward(h);
      if (features == feature_layers_.size() ||
          static_cast<size_t>(feature_layers_[features]) != i) {
        continue;
      }
      feature_mergers_[features].Forward(pass, h, Part(rows, features + 1));
      ++features;
    }
    merger_.Forward(pass, h, Part(rows, 0));
  }

  // h = patch embeddings + interpolated positions
  void Embed(nn::Pass& pass, Tensor patches, Tensor h) const {
    const ArenaScope scope(pass.arena);
    Tensor embedded = pass.arena.Allocate(DType::kF32, h.shape);
    EmbedPatches(pass, patch_embedding_, patches, embedded);
    positions().Add(pass, embedded, h);
  }

  Tensor Part(const Tensor& rows, size_t i) const {
    const auto first = static_cast<int64_t>(i) * text_size_;
    return rows.Cols(first, first + text_size_);
  }

  const int64_t text_size_;
  const std::vector<int32_t> feature_layers_;
  const nn::Linear patch_embedding_;
  std::vector<PreNorm> layers_;
  PatchMerger merger_;
  std::vector<PatchMerger> feature_mergers_;
};

Result<std::unique_ptr<Model>> Create(ConfigReader config, nn::WeightLoad& load,
                                      const LoadOptions& options, const Variant& variant) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config), variant));
  load.tensors.Skip("mtp.");  // of Qwen3.5: layers that only draft tokens
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(c.text, load, options));
  RETURN_IF_ERROR(AddGridTower<Qwen3VlEncoder>(*model, load, options, c.image_token, c.vision));
  return model;
}

}  // namespace

Result<std::unique_ptr<Model>> CreateQwen3Vl(ConfigReader config, nn::WeightLoad& load,
                                             const LoadOptions& options) {
  const auto parse = [](ConfigReader& text) { return ParseQwen3VlText(text, /*experts=*/false); };
  return Create(std::move(config), load, options, {"qwen3_vl", parse});
}

Result<std::unique_ptr<Model>> CreateQwen3VlMoe(ConfigReader config, nn::WeightLoad& load,
                                                const LoadOptions& options) {
  const auto parse = [](ConfigReader& text) { return ParseQwen3VlText(text, /*experts=*/true); };
  return Create(std::move(config), load, options, {"qwen3_vl_moe", parse});
}

Result<std::unique_ptr<Model>> CreateQwen35Vl(ConfigReader config, nn::WeightLoad& load,
                                              const LoadOptions& options) {
  return Create(std::move(config), load, options,
                {"qwen3_5", &ParseQwen35Text, /*deepstack=*/false});
}

}  // namespace tokamak
