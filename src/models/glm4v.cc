// GLM-4.1V and GLM-4.5V: GLM-4's text models with mRoPE, and a tower for images of about their own
// size (models/grid_tower.h) with learned positions, which are interpolated to an image's grid.
// Report: arXiv:2507.01006. References: transformers, models/glm4v and models/glm4v_moe.
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
#include "models/position_table.h"
#include "models/vision_tower.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "weights/reordered.h"

namespace tokamak {
namespace {

constexpr int32_t kMaxSide = 1 << 12;  // of an image, in pixels

struct TowerConfig {
  GridTowerConfig grid;
  int32_t position_side = 0;  // of the square grid of learned positions
  nn::NormConfig norm;
  nn::MlpShape mlp;     // of the layers
  nn::MlpShape merger;  // of the rows
};

TowerConfig ParseTower(ConfigReader& outer, const std::string& type, int32_t text_size) {
  ConfigReader vision = OpenVisionConfig(outer, type);
  // The defaults of the reference's class.
  vision.SetDefault("hidden_size", 1536);
  vision.SetDefault("num_heads", 12);
  vision.SetDefault("depth", 24);
  vision.SetDefault("patch_size", 14);
  TowerConfig c;
  c.grid = ParseGridTower(vision, "hidden_size", "num_heads");
  c.grid.attention.qkv_bias = vision.BoolOr("attention_bias", false);
  const int32_t image_size = vision.IntOr("image_size", 336, Positive(kMaxSide));
  c.position_side = image_size / c.grid.patch_size;
  if (c.position_side == 0) {
    vision.Fail("image_size",
                fmt::format("{} is less than patch_size {}", image_size, c.grid.patch_size));
    c.position_side = 1;
  }
  c.norm.eps = static_cast<float>(vision.NumberOr("rms_norm_eps", 1e-5, {0, 1}));
  ExpectRowSize(vision, "out_hidden_size", 4096, text_size);
  c.grid.row_size = text_size;
  c.mlp = {.hidden_size = c.grid.attention.hidden_size,
           .intermediate_size = text_size,
           .activation = ParseVisionActivation(vision, "hidden_act", "silu")};
  c.merger = {.hidden_size = text_size,
              .intermediate_size = vision.IntOr("intermediate_size", 13696, kIntermediateSizes),
              .activation = c.mlp.activation};
  vision.Ignore({"hidden_dropout_prob"});  // for training
  return c;
}

struct Config {
  DecoderConfig text;
  TowerConfig vision;
  int32_t image_token = 0;
};

Result<Config> ParseConfig(ConfigReader reader, bool moe) {
  const std::string type = moe ? "glm4v_moe" : "glm4v";
  Config c;
  ConfigReader text = OpenTextConfig(reader, type + "_text");
  c.text = moe ? ParseGlm4vMoeText(text) : ParseGlm4vText(text);
  ParseEitherTie(reader, c.text);
  c.vision = ParseTower(reader, type, c.text.hidden_size);
  c.image_token =
      reader.IntOr("image_token_id", moe ? 151363 : 151343, NonNegative(c.text.vocab_size - 1));
  // The chat template writes them.
  reader.Ignore({"image_end_token_id", "image_start_token_id", "video_end_token_id",
                 "video_start_token_id", "video_token_id"});
  return reader.Finish(std::move(c));
}

// Makes a row of each square of patches: mlp(gelu(norm(linear(convolution(norm(h)))))), where the
// convolution covers a square.
class Merger {
 public:
  Merger(const nn::Builder& tower, const TowerConfig& c)
      : patch_size_(c.grid.attention.hidden_size),
        merged_(c.grid.merged()),
        patch_norm_(tower / "post_layernorm", patch_size_, c.norm),
        convolution_(MakeConvolution(tower / "downsample", c)) {
    const nn::Builder b = tower / "merger";
    b.Needs({Capability::kActivate, Capability::kConvert, Capability::kGelu});
    b.Needs(NeedsOf(c.merger.activation));
    const int64_t size = c.merger.hidden_size, inner = c.merger.intermediate_size;
    projection_ = nn::Linear::Replicated(b / "proj", size, size, false);
    norm_ = nn::Norm(b / "post_projection_norm", size,
                     {.eps = 1e-5f, .layer_norm = true, .bias = true});
    gate_up_ = nn::Linear::Column(b,
                                  {{"gate_proj", inner, {0, inner}, "intermediate_size"},
                                   {"up_proj", inner, {0, inner}, "intermediate_size"}},
                                  size, false);
    activation_ = c.merger.activation;
    down_ = nn::Linear::Replicated(b / "down_proj", size, inner, false);
  }

  // Writes the rows of the squares that begin with pass.logit_rows: f32 [R, row_size].
  void Forward(nn::Pass& pass, const Residual& h, Tensor rows) const {
    const ArenaScope scope(pass.arena);
    const Tensor squares =
        NormalizeSquares(pass, h, patch_norm_, patch_size_, merged_, convolution_.activation());
    Tensor x = pass.arena.Allocate(DType::kF32, rows.shape);
    convolution_.Forward(pass, squares, x);
    Tensor converted = pass.arena.Allocate(projection_.activation(), rows.shape);
    pass.ops.Run(Convert{.x = x, .out = converted}, pass.stream);
    projection_.Forward(pass, converted, x);
    norm_.Forward(pass, x, x);
    Tensor activated = pass.arena.Allocate(gate_up_.activation(), rows.shape);
    pass.ops.Run(Activate{.x = x, .activation = Activation::kGelu, .out = activated}, pass.stream);
    Tensor gate_up = pass.arena.Allocate(gate_up_.output(), {rows.rows(), gate_up_.out_features()});
    Tensor inner = pass.arena.Allocate(down_.activation(), {rows.rows(), down_.in_features()});
    pass.ops.Run(GateUp{.linear = gate_up_.Operation(activated, gate_up),
                        .gate = {.gate_up = gate_up, .activation = activation_, .out = inner}},
                 pass.stream);
    down_.Forward(pass, inner, rows);
  }

 private:
  // The convolution is a product with the patches of a square, side by side.
  static nn::Linear MakeConvolution(const nn::Builder& b, const TowerConfig& c) {
    const int64_t size = c.grid.row_size;
    const int32_t merge = c.grid.merge_size;
    nn::SourcePtr stored = (b / "weight").Find({size, c.grid.attention.hidden_size, merge, merge});
    if (stored == nullptr) return {};
    nn::SourcePtr weight =
        b.OrFail(AsChannelsLastMatrix(std::move(stored), c.grid.attention.hidden_size));
    return nn::Linear(b.PackWeight({std::move(weight)}, WeightUse::kLinear),
                      (b / "bias").ReadVector(size));
  }

  const int64_t patch_size_;  // of a patch's hidden state
  const int32_t merged_;
  const nn::Norm patch_norm_;
  const nn::Linear convolution_;
  nn::Linear projection_;
  nn::Norm norm_;
  nn::Linear gate_up_, down_;
  Activation activation_ = Activation::kSilu;
};

class Glm4vEncoder final : public GridTower {
 public:
  Glm4vEncoder(const nn::Builder& b, const TowerConfig& c, nn::Rope rope)
      : GridTower(c.grid, std::move(rope),
                  PositionTable(b / "embeddings.position_embedding", c.position_side,
                                c.grid.attention.hidden_size, Interpolation::kBicubic)),
        patch_embedding_(
            MakePatchEmbedding(b / "patch_embed.proj", c.grid.PatchShape(), /*bias=*/true)),
        embedding_norm_(b / "post_conv_layernorm", c.grid.attention.hidden_size, c.norm),
        merger_(b, c) {
    const int64_t hidden = c.grid.attention.hidden_size;
    for (int32_t i = 0; i < c.grid.num_layers && b.ok(); ++i) {
      const nn::Builder at = b / "blocks" / i;
      layers_.push_back(
          {nn::Norm(at / "norm1", hidden, c.norm),
           std::make_unique<nn::Attention>(
               at / "attn", c.grid.attention, /*rope=*/nullptr,
               nn::AttentionExtras{.causal = false, .names = {.qkv = "qkv", .output = "proj"}}),
           nn::Norm(at / "norm2", hidden, c.norm), std::make_unique<nn::Mlp>(at / "mlp", c.mlp)});
    }
  }

 private:
  void Run(nn::Pass& pass, Tensor patches, Residual& h, Tensor rows) const override {
    Embed(pass, patches, h.first());
    for (const PreNorm& layer : layers_) layer.Forward(h);
    merger_.Forward(pass, h, rows);
  }

  // h = norm(patch embeddings) + interpolated positions
  void Embed(nn::Pass& pass, Tensor patches, Tensor h) const {
    const ArenaScope scope(pass.arena);
    Tensor embedded = pass.arena.Allocate(DType::kF32, h.shape);
    EmbedPatches(pass, patch_embedding_, patches, embedded);
    embedding_norm_.Forward(pass, embedded, embedded);
    positions().Add(pass, embedded, h);
  }

  const nn::Linear patch_embedding_;
  const nn::Norm embedding_norm_;
  const Merger merger_;
  std::vector<PreNorm> layers_;
};

Result<std::unique_ptr<Model>> Create(ConfigReader config, nn::WeightLoad& load,
                                      const LoadOptions& options, bool moe) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config), moe));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(c.text, load, options));
  RETURN_IF_ERROR(AddGridTower<Glm4vEncoder>(*model, load, options, c.image_token, c.vision));
  return model;
}

}  // namespace

Result<std::unique_ptr<Model>> CreateGlm4v(ConfigReader config, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  return Create(std::move(config), load, options, /*moe=*/false);
}

Result<std::unique_ptr<Model>> CreateGlm4vMoe(ConfigReader config, nn::WeightLoad& load,
                                              const LoadOptions& options) {
  return Create(std::move(config), load, options, /*moe=*/true);
}

}  // namespace tokamak
