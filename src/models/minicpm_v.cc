// MiniCPM-V 4.6: SigLIP's layers over images of about their own aspect ratio, and over the tiles of
// large ones, which are images of their own. Within the tower, squares of 2 x 2 patches, which
// attend to each other first, become one token; behind it, an MLP makes a row of 2 x 2 of these.
// Reference: transformers, models/minicpmv4_6.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "models/grid_tower.h"
#include "models/image_encoder.h"
#include "models/layer.h"
#include "models/position_table.h"
#include "models/vision_tower.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mlp.h"

namespace tokamak {
namespace {

constexpr int32_t kSide = 2;                // of the squares that are merged
constexpr int32_t kSquare = kSide * kSide;  // tokens that become one

struct Config {
  DecoderConfig text;
  VisionTowerConfig vision;
  int32_t merge_layer = 0;  // the tower merges behind it
  bool merges = true;       // else only the MLP behind the tower does ("4x")
  int32_t side = 0;         // patches on a side of a square image
  int32_t image_token = 0;

  int32_t row_side() const { return merges ? kSide * kSide : kSide; }  // patches on a row's side
};

// The tower merges squares of this size only.
void ExpectSquares(ConfigReader& reader, const char* field) {
  reader.ExpectOrAbsent(field, JsonValue(JsonValue::Array{kSide, kSide}));
}

Result<DecoderConfig> ParseText(ConfigReader& outer) {
  ConfigReader text = outer.Part("text_config");
  const std::string type = text.StringOr("model_type", "qwen3_5_text");
  if (type == "qwen3") return ParseQwen3(text);
  if (type != "qwen3_5_text") {
    text.Fail("model_type", "\"" + type +
                                "\" is not supported as the text model of this architecture; "
                                "supported are \"qwen3_5_text\" and \"qwen3\"");
    return text.status();
  }
  DecoderConfig c = ParseQwen35Text(text);
  // The positions of images are those of texts: equal in all dimensions.
  for (nn::RopeSpec& rope : c.ropes) rope.sections.clear();
  return text.Finish(std::move(c));
}

Result<Config> ParseConfig(ConfigReader reader) {
  Config c;
  ASSIGN_OR_RETURN(c.text, ParseText(reader));
  ParseEitherTie(reader, c.text);
  {
    ConfigReader vision = OpenVisionConfig(reader, "minicpmv4_6");
    c.vision = ParseVisionFields(vision, /*clip=*/false);
    ExpectSquares(vision, "window_kernel_size");
    vision.Ignore({"insert_layer_id"});  // the outer one counts
  }
  c.merge_layer = reader.IntOr("insert_layer_id", 6, NonNegative(c.vision.num_layers - 1));
  const std::string mode = reader.StringOr("downsample_mode", "16x");
  c.merges = mode != "4x";
  if (c.merges && mode != "16x") {
    reader.Fail("downsample_mode",
                "\"" + mode + "\" is not supported; supported are \"4x\" and \"16x\"");
  }
  ExpectSquares(reader, "merge_kernel_size");
  reader.ExpectOrAbsent("merger_times", 1);
  reader.ExpectOrAbsent("drop_vision_last_layer", false);
  c.side = CeilDiv(reader.IntOr("image_size", 448, Positive(1 << 12)), c.vision.patch_size);
  reader.ExpectOrAbsent("patch_size", c.vision.patch_size);
  c.image_token = reader.Int("image_token_id", NonNegative(c.text.vocab_size - 1));
  reader.Ignore({"video_token_id"});  // videos are not supported
  return reader.Finish(std::move(c));
}

PreNorm MakeLayer(const nn::Builder& b, const VisionTowerConfig& c, nn::ImageScope scope) {
  const int64_t hidden = c.attention.hidden_size;
  const nn::AttentionExtras extras = {
      .causal = false, .image_scope = scope, .names = {.output = "out_proj"}};
  return {nn::Norm(b / "layer_norm1", hidden, c.norm),
          std::make_unique<nn::Attention>(b / "self_attn", c.attention, /*rope=*/nullptr, extras),
          nn::Norm(b / "layer_norm2", hidden, c.norm),
          std::make_unique<nn::PlainMlp>(b / "mlp", c.mlp,
                                         nn::PlainMlpNames{.up = "fc1", .down = "fc2"})};
}

// Makes one token of each square: h += attention(norm(h)) within the square; the result is the mean
// of its tokens, plus mlp(norm(its tokens side by side)).
class SquareMerger {
 public:
  SquareMerger() = default;
  SquareMerger(const nn::Builder& b, const VisionTowerConfig& c)
      : hidden_(c.attention.hidden_size),
        attention_norm_(b / "layer_norm1", hidden_, c.norm),
        attention_(std::make_unique<nn::Attention>(
            b / "self_attn", c.attention, /*rope=*/nullptr,
            nn::AttentionExtras{.causal = false,
                                .image_scope = nn::ImageScope::kWindow,
                                .names = {.output = "out_proj"}})),
        norm_(b / "pre_norm", kSquare * hidden_, c.norm),
        up_(nn::Linear::Replicated(b / "linear_1", kSquare * c.mlp.intermediate_size,
                                   kSquare * hidden_, true)),
        down_(nn::Linear::Replicated(b / "linear_2", hidden_, kSquare * c.mlp.intermediate_size,
                                     true)) {
    b.Needs({Capability::kActivate, Capability::kAddResidual});
  }

  // merged: f32 [T / kSquare, hidden_size]. `h` cannot be used any more.
  void Forward(nn::Pass& pass, Residual& h, Tensor merged) const {
    const ArenaScope scope(pass.arena);
    h.Add(attention_norm_, attention_);
    Tensor squares = pass.arena.Allocate(up_.activation(), {merged.rows(), kSquare * hidden_});
    h.Normalize(norm_, squares);
    Tensor inner = pass.arena.Allocate(up_.output(), {merged.rows(), up_.out_features()});
    up_.Forward(pass, squares, inner);
    Tensor activated = pass.arena.Allocate(down_.activation(), inner.shape);
    pass.ops.Run(Activate{.x = inner, .activation = Activation::kGeluTanh, .out = activated},
                 pass.stream);
    down_.Forward(pass, activated, merged);
    const Tensor tokens(h.first().data, DType::kF32, squares.shape);
    for (int64_t i = 0; i < kSquare; ++i) {
      pass.ops.Run(AddResidual{.x = tokens.Cols(i * hidden_, (i + 1) * hidden_),
                               .residual = merged,
                               .scale = 1.0f / kSquare},
                   pass.stream);
    }
  }

 private:
  int64_t hidden_ = 0;
  nn::Norm attention_norm_;
  SublayerPtr attention_;
  nn::Norm norm_;
  nn::Linear up_, down_;
};

// The places of the 2 x 2 patches of each of these squares, of which `width` are beside each other.
std::vector<int32_t> PatchesOf(const std::vector<int32_t>& squares, int32_t width) {
  std::vector<int32_t> patches;
  for (const int32_t square : squares) {
    const int32_t top = square / width * kSide, left = square % width * kSide;
    for (int32_t i = 0; i < kSquare; ++i) {
      patches.push_back((top + i / kSide) * width * kSide + left + i % kSide);
    }
  }
  return patches;
}

// The places of an image's patches, row by row, in the order in which the tower takes them: those
// that become one token follow each other, and so do the tokens that become a row. `row_side`:
// patches on a row's side.
std::vector<int32_t> OrderPatches(int32_t height, int32_t width, int32_t row_side) {
  std::vector<int32_t> order(static_cast<size_t>(height / row_side * (width / row_side)));
  std::iota(order.begin(), order.end(), 0);
  for (int32_t side = row_side; side > 1; side /= kSide) order = PatchesOf(order, width / side);
  return order;
}

class MiniCpmVEncoder final : public ImageEncoder {
 public:
  MiniCpmVEncoder(const nn::Builder& top, const Config& c)
      : c_(c),
        patch_embedding_(MakePatchEmbedding(
            top / "vision_tower.embeddings.patch_embedding",
            {c.vision.attention.hidden_size, 3, c.vision.patch_size, c.vision.patch_size},
            /*bias=*/true)),
        positions_(top / "vision_tower.embeddings.position_embedding", c.vision.grid(),
                   c.vision.attention.hidden_size, Interpolation::kNearest) {
    const nn::Builder b = top / "vision_tower";
    b.Needs(Capability::kConvert);
    for (int32_t i = 0; i < c.vision.num_layers && b.ok(); ++i) {
      const bool behind = c.merges && i > c.merge_layer;
      layers_.push_back(MakeLayer(b / "encoder.layers" / i, c.vision,
                                  behind ? nn::ImageScope::kMerged : nn::ImageScope::kSequence));
    }
    if (c.merges) {
      square_merger_ = SquareMerger(b / "vit_merger", c.vision);
    } else {
      b.Skip("vit_merger.");
    }
    post_norm_ = nn::Norm(b / "post_layernorm", c.vision.attention.hidden_size, c.vision.norm);
    GridTowerConfig squares;
    squares.attention = c.vision.attention;
    squares.merge_size = kSide;
    row_merger_ = PatchMerger(top / "merger.mlp.0",
                              {.norm = "pre_norm", .up = "linear_1", .down = "linear_2"}, squares,
                              {.eps = 1e-6f, .layer_norm = true, .bias = true},
                              PatchMerger::NormOf::kSquare, c.text.hidden_size);
    const int32_t patches = c.row_side() * c.row_side();
    // A narrow image may have twice the patches of a square one.
    const int32_t rows = CeilDiv(2 * c.side * c.side, patches);
    spec_ = GridEncoderSpec(rows, patches, c.vision.patch_values(), c.text.hidden_size);
    spec_.rope_dimensions = 0;
    spec_.position_taps = positions_.num_taps();
    if (c.merges) spec_.merged_tokens = spec_.max_window_len = spec_.tokens_per_window = kSquare;
  }

  Result<ImageLayout> Layout(const ImageView& image) const override {
    const int32_t height = image.grid_height, width = image.grid_width, side = c_.row_side();
    const int64_t patches = int64_t{height} * width;
    const std::vector<int64_t> expected = {patches, 3, c_.vision.patch_size, c_.vision.patch_size};
    if (height < 1 || width < 1 || height % side != 0 || width % side != 0 ||
        !std::equal(expected.begin(), expected.end(), image.shape.begin(), image.shape.end())) {
      return InvalidArgument(
          "an image was prepared as {} x {} patches, but the model takes multiples of {} x {} of "
          "{} x {} pixels: preprocessor_config.json (patch_size, downsample_mode) does not fit "
          "config.json",
          height, width, side, side, c_.vision.patch_size, c_.vision.patch_size);
    }
    if (patches > spec_.max_image_tokens) {
      return InvalidArgument("an image has {} patches, of at most {}; cut off a part of it",
                             patches, spec_.max_image_tokens);
    }
    ImageLayout layout{.sequence_lens = {static_cast<int32_t>(patches)}};
    layout.positions.resize(static_cast<size_t>(patches));
    std::iota(layout.positions.begin(), layout.positions.end(), 0);
    for (const int32_t patch : OrderPatches(height, width, side)) {
      positions_.Append(patch / width, patch % width, height, width, layout);
    }
    for (int32_t token = 0; token < patches; token += side * side) layout.rows.push_back(token);
    if (c_.merges) layout.window_lens.assign(static_cast<size_t>(patches / kSquare), kSquare);
    return layout;
  }

  void Unfold(const ImageView& image, std::span<float> patches) const override {
    const auto size = static_cast<size_t>(spec_.patch_size);
    float* out = patches.data();
    for (const int32_t patch : OrderPatches(image.grid_height, image.grid_width, c_.row_side())) {
      out = std::copy_n(image.values.data() + static_cast<size_t>(patch) * size, size, out);
    }
  }

  Tensor Forward(nn::Pass& pass, Tensor patches) const override {
    Tensor rows = pass.arena.Allocate(DType::kF32, {pass.logit_rows.cols(), spec_.row_size});
    const ArenaScope scope(pass.arena);
    Residual h(pass, c_.vision.attention.hidden_size);
    Embed(pass, patches, h.first());
    const auto merge_behind = c_.merges ? layers_.begin() + c_.merge_layer + 1 : layers_.end();
    for (auto layer = layers_.begin(); layer != merge_behind; ++layer) layer->Forward(h);
    if (!c_.merges) {
      MakeRows(pass, h, rows);
      return rows;
    }
    nn::Pass merged = pass;
    merged.positions = Tensor(pass.positions.data, DType::kI32, Shape{pass.num_tokens() / kSquare});
    Residual tokens(merged, c_.vision.attention.hidden_size);
    square_merger_.Forward(pass, h, tokens.first());
    for (auto layer = merge_behind; layer != layers_.end(); ++layer) layer->Forward(tokens);
    MakeRows(merged, tokens, rows);
    return rows;
  }

 private:
  // h = patch embeddings + positions
  void Embed(nn::Pass& pass, Tensor patches, Tensor h) const {
    const ArenaScope scope(pass.arena);
    Tensor embedded = pass.arena.Allocate(DType::kF32, h.shape);
    EmbedPatches(pass, patch_embedding_, patches, embedded);
    positions_.Add(pass, embedded, h);
  }

  void MakeRows(nn::Pass& pass, const Residual& h, Tensor rows) const {
    const ArenaScope scope(pass.arena);
    const Residual normed(pass, c_.vision.attention.hidden_size);
    h.Normalize(post_norm_, normed.first());
    row_merger_.Forward(pass, normed, rows);
  }

  const Config c_;
  const nn::Linear patch_embedding_;
  const PositionTable positions_;
  std::vector<PreNorm> layers_;
  SquareMerger square_merger_;  // only if c_.merges
  nn::Norm post_norm_;
  PatchMerger row_merger_;
};

}  // namespace

Result<std::unique_ptr<Model>> CreateMiniCpmV(ConfigReader config, nn::WeightLoad& load,
                                              const LoadOptions& options) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config)));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(c.text, load, options));
  const nn::Builder b(load);
  b.Skip("mtp.");                      // layers that only draft tokens
  if (options.task == Task::kEmbed) {  // texts only
    b.Skip("vision_tower.");
    b.Skip("merger.");
    return model;
  }
  AddImageEncoder(*model, load, c.image_token,
                  [&] { return std::make_unique<MiniCpmVEncoder>(b, c); });
  return model;
}

}  // namespace tokamak
