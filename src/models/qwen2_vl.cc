// Qwen2-VL and Qwen2.5-VL: images of about their own size and aspect ratio. The tower rotates
// queries and keys by the row and the column of their patch, and each square of merge_size x
// merge_size patches becomes one row, whose position has three dimensions (nn::RopeSpec::sections).
// In Qwen2.5-VL, most layers of the tower attend within windows. Papers: arXiv:2409.12191,
// arXiv:2502.13923. References: transformers, models/qwen2_vl and models/qwen2_5_vl.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "models/grid_tower.h"
#include "models/image_encoder.h"
#include "models/layer.h"
#include "models/vision_tower.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/rope.h"

namespace tokamak {
namespace {

// Patches of the largest image: 1,280 rows with the published sizes, as the class of the reference
// prepares images by default.
constexpr int32_t kMaxPatches = 5120;
constexpr IntRange kPatchSizes = Positive(1 << 10), kFewPatches = Positive(16);

struct TowerConfig {
  bool newer = false;  // Qwen2.5-VL
  int32_t patch_size = 0;
  int32_t frames = 0;  // of a patch; those of an image are equal
  int32_t merge_size = 0;
  int32_t window = 0;          // merged patches per side; 0: no layer has windows
  std::vector<bool> windowed;  // per layer
  nn::NormConfig norm;
  nn::AttentionConfig attention;
  nn::MlpShape mlp;
  double theta = 0;

  int32_t merged() const { return merge_size * merge_size; }  // patches per row
  int32_t patch_values() const { return 3 * frames * patch_size * patch_size; }
};

void ParseWindows(ConfigReader& vision, TowerConfig& c) {
  const int32_t size = vision.IntOr("window_size", 112, Positive(1 << 12));
  c.window = size / c.merge_size / c.patch_size;
  if (c.window == 0) {
    vision.Fail("window_size", fmt::format("{} is less than spatial_merge_size {} · patch_size {}",
                                           size, c.merge_size, c.patch_size));
    c.window = 1;
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
  ConfigReader vision = outer.Part("vision_config");
  TowerConfig c;
  c.newer = newer;
  const std::string outer_type = newer ? "qwen2_5_vl" : "qwen2_vl";
  const std::string type = vision.StringOr("model_type", outer_type);  // older files have that one
  if (type != outer_type && type != outer_type + "_vision") {
    vision.Fail("model_type",
                "\"" + type + "\" is not supported; supported is \"" + outer_type + "_vision\"");
  }
  const char* const size = newer ? "hidden_size" : "embed_dim";
  vision.SetDefault(size, newer ? 3584 : 1280);
  vision.SetDefault("num_heads", 16);
  c.attention = ParseMultiHeadAttention(vision, size, "num_heads");
  c.attention.qkv_bias = c.attention.output_bias = true;
  if (c.attention.head_dim % 4 != 0) {
    vision.Fail("num_heads", fmt::format("makes heads of {} dimensions, but rotations by rows and "
                                         "columns need a multiple of 4",
                                         c.attention.head_dim));
    c.attention.head_dim = 4;
  }
  const int64_t hidden = c.attention.hidden_size;
  c.mlp = {.hidden_size = hidden,
           .intermediate_size = newer ? vision.IntOr("intermediate_size", 3420, kIntermediateSizes)
                                      : hidden * vision.IntOr("mlp_ratio", 4, Positive(64)),
           .activation = ParseVisionActivation(vision, "hidden_act", newer ? "silu" : "quick_gelu"),
           .bias = true};
  c.norm = {.eps = 1e-6f, .layer_norm = !newer, .bias = !newer};
  c.windowed.resize(static_cast<size_t>(vision.IntOr("depth", 32, Positive(10000))));
  c.patch_size = vision.IntOr("patch_size", 14, kPatchSizes);
  c.frames = vision.IntOr("temporal_patch_size", 2, kFewPatches);
  c.merge_size = vision.IntOr("spatial_merge_size", 2, kFewPatches);
  if (newer) ParseWindows(vision, c);
  c.theta = 10000;
  if (vision.Has("rope_parameters")) {
    const ConfigReader rope = vision.Object("rope_parameters");
    rope.ExpectOrAbsent("rope_type", "axial");
    c.theta = rope.NumberOr("rope_theta", c.theta, {1.0001, 1e15});
  }
  const char* const out = newer ? "out_hidden_size" : "hidden_size";
  if (const int32_t rows = vision.IntOr(out, 3584, kHiddenSizes); rows != text_size) {
    vision.Fail(out, fmt::format("is {}, but the text model's hidden_size is {}", rows, text_size));
  }
  vision.ExpectOrAbsent("in_channels", 3);
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
  c.image_token = reader.IntOr("image_token_id", 151655, NonNegative(c.text.vocab_size - 1));
  // The chat template writes them.
  reader.Ignore(
      {"video_token_id", "vision_end_token_id", "vision_start_token_id", "vision_token_id"});
  return reader.Finish(std::move(c));
}

PreNorm MakeLayer(const nn::Builder& b, const TowerConfig& c, bool windowed) {
  const nn::AttentionExtras extras = {
      .causal = false, .image_windows = windowed, .names = {.qkv = "qkv", .output = "proj"}};
  const int64_t hidden = c.attention.hidden_size;
  PreNorm layer = {nn::Norm(b / "norm1", hidden, c.norm),
                   std::make_unique<nn::Attention>(b / "attn", c.attention, nullptr, extras),
                   nn::Norm(b / "norm2", hidden, c.norm), nullptr};
  if (c.newer) {
    layer.feed_forward = std::make_unique<nn::Mlp>(b / "mlp", c.mlp);
  } else {
    layer.feed_forward = std::make_unique<nn::PlainMlp>(
        b / "mlp", c.mlp, nn::PlainMlpNames{.up = "fc1", .down = "fc2"});
  }
  return layer;
}

class QwenVlEncoder final : public ImageEncoder {
 public:
  // `rope`: by rows, and by columns, for a quarter of a head's dimensions each.
  QwenVlEncoder(const nn::Builder& b, const TowerConfig& c, int32_t text_size, nn::Rope rope)
      : c_(c),
        rope_(std::move(rope)),
        sections_{{0, 0, c.attention.head_dim / 4}, {1, 0, c.attention.head_dim / 4}},
        patch_embedding_(MakePatchEmbedding(
            b / "patch_embed.proj",
            {c.attention.hidden_size, 3, c.frames, c.patch_size, c.patch_size}, /*bias=*/false)) {
    b.Needs({Capability::kActivate, Capability::kConvert});
    b.Needs(NeedsOf(Activation::kGelu));
    for (size_t i = 0; i < c.windowed.size() && b.ok(); ++i) {
      layers_.push_back(MakeLayer(b / "blocks" / static_cast<int64_t>(i), c, c.windowed[i]));
    }
    const nn::Builder merger = b / "merger";
    const int64_t merged = int64_t{c.attention.hidden_size} * c.merged();
    norm_ = nn::Norm(merger / "ln_q", c.attention.hidden_size, c.norm);
    merge_up_ = nn::Linear::Replicated(merger / "mlp.0", merged, merged, true);
    merge_down_ = nn::Linear::Replicated(merger / "mlp.2", text_size, merged, true);
    const int32_t rows = std::max(1, kMaxPatches / c.merged());
    spec_ = GridEncoderSpec(rows, c.merged(), c.patch_values(), text_size);
    spec_.max_window_len = c.window * c.window * c.merged();
    spec_.tokens_per_window = c.window * c.merged();
  }

  Result<ImageLayout> Layout(const ImageView& image) const override {
    const int32_t merge = c_.merge_size;
    const int64_t patches = int64_t{image.grid_height} * image.grid_width;
    const std::vector<int64_t> expected = {patches, 3, c_.frames, c_.patch_size, c_.patch_size};
    if (patches < 1 || image.grid_height % merge != 0 || image.grid_width % merge != 0 ||
        !std::equal(expected.begin(), expected.end(), image.shape.begin(), image.shape.end())) {
      return InvalidArgument(
          "an image was prepared as {} patches of other sizes than the model's: "
          "preprocessor_config.json does not fit config.json",
          patches);
    }
    if (patches > spec_.max_image_tokens) {
      return InvalidArgument("an image has {} patches, of at most {}; make it smaller", patches,
                             spec_.max_image_tokens);
    }
    const int32_t height = image.grid_height / merge, width = image.grid_width / merge;
    ImageLayout layout = LayOutGrid(height, width, merge, c_.window);
    layout.grid_height = height;
    layout.grid_width = width;
    return layout;
  }

  void Unfold(const ImageView& image, std::span<float> patches) const override {
    const SquareOrder order = OrderSquares(image.grid_height / c_.merge_size,
                                           image.grid_width / c_.merge_size, c_.window);
    const size_t width = static_cast<size_t>(c_.merged()) * static_cast<size_t>(c_.patch_values());
    float* out = patches.data();
    for (const int32_t square : order.squares) {
      out = std::copy_n(image.values.data() + static_cast<size_t>(square) * width, width, out);
    }
  }

  Tensor Forward(nn::Pass& pass, Tensor patches) const override {
    Tensor rows = pass.arena.Allocate(DType::kF32, {pass.logit_rows.cols(), spec_.hidden_size});
    const ArenaScope scope(pass.arena);
    const RopeTable rope = nn::TokenRope(pass, rope_.table(), sections_);
    pass.token_rope = &rope;
    Residual h(pass, c_.attention.hidden_size);
    EmbedPatches(pass, patch_embedding_, patches, h.first());
    for (const PreNorm& layer : layers_) layer.Forward(h);
    pass.token_rope = nullptr;
    Merge(pass, h, rows);
    return rows;
  }

 private:
  // rows = linear_2(gelu(linear_1(norm(h)))) of the merged patches that begin with logit_rows.
  void Merge(nn::Pass& pass, const Residual& h, Tensor rows) const {
    const Tensor squares = NormalizeSquares(pass, h, norm_, c_.attention.hidden_size, c_.merged(),
                                            merge_up_.activation());
    Tensor inner = pass.arena.Allocate(merge_up_.output(), squares.shape);
    merge_up_.Forward(pass, squares, inner);
    Tensor activated = pass.arena.Allocate(merge_down_.activation(), squares.shape);
    pass.ops.Run(Activate{.x = inner, .activation = Activation::kGelu, .out = activated},
                 pass.stream);
    merge_down_.Forward(pass, activated, rows);
  }

  const TowerConfig c_;
  const nn::Rope rope_;
  const std::vector<nn::RopeSection> sections_;
  const nn::Linear patch_embedding_;
  std::vector<PreNorm> layers_;
  nn::Norm norm_;
  nn::Linear merge_up_, merge_down_;
};

Result<std::unique_ptr<Model>> Create(ConfigReader config, nn::WeightLoad& load,
                                      const LoadOptions& options, bool newer) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config), newer));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(c.text, load, options));
  const nn::Builder b(load);
  if (options.task == Task::kEmbed) {  // texts only
    b.Skip("visual.");
    return model;
  }
  nn::RopeSpec spec;
  spec.theta = c.vision.theta;
  spec.rotary_dim = c.vision.attention.head_dim / 2;
  ASSIGN_OR_RETURN(nn::Rope rope,
                   nn::Rope::Make(spec, std::max(1, kMaxPatches / c.vision.merge_size), load.ops));
  AddImageEncoder(*model, load, c.image_token, [&] {
    return std::make_unique<QwenVlEncoder>(b / "visual", c.vision, c.text.hidden_size,
                                           std::move(rope));
  });
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
