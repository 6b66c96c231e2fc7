// Pixtral: the tower rotates queries and keys by the row and the column of their patch. In Mistral
// Small 3.1, squares of patches are merged before the projector; Pixtral 12B has LLaVA's projector
// (models/llava.cc). References: transformers, models/pixtral and models/mistral3.
#include "models/pixtral.h"

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
#include "nn/linear.h"
#include "nn/rope.h"
#include "weights/reordered.h"

namespace tokamak {
namespace {

constexpr nn::NormConfig kNorm = {.eps = 1e-5f};
constexpr IntRange kSides = Positive(1 << 12);  // as for images; in pixels

double ParseTheta(ConfigReader& vision) {
  constexpr NumberRange kBases = {1.0001, 1e15};
  const double theta = vision.NumberOr("rope_theta", 10000, kBases);
  if (!vision.Has("rope_parameters")) return theta;
  const ConfigReader rope = vision.Object("rope_parameters");
  if (const std::string type = rope.StringOr("rope_type", "axial");
      type != "axial" && type != "default") {
    rope.Fail("rope_type", "\"" + type + "\" is not supported; supported is \"axial\"");
  }
  return rope.NumberOr("rope_theta", theta, kBases);
}

// The pairs of a head with even frequencies rotate by rows, the others by columns.
std::vector<nn::RopeSection> AxialSections(int32_t head_dim) {
  const int32_t pairs = head_dim / 2, even = (pairs + 1) / 2;
  return {{0, 0, even}, {1, even, pairs - even}};
}

PreNorm MakeLayer(const nn::Builder& b, const PixtralConfig& c) {
  const int64_t hidden = c.attention.hidden_size;
  return {nn::Norm(b / "attention_norm", hidden, kNorm),
          std::make_unique<nn::Attention>(b / "attention", c.attention, /*rope=*/nullptr,
                                          nn::AttentionExtras{.causal = false}),
          nn::Norm(b / "ffn_norm", hidden, kNorm),
          std::make_unique<nn::Mlp>(b / "feed_forward", c.mlp)};
}

// The weight for the patches of a square, whose values are stored channel by channel.
nn::Linear MakeMerger(const nn::Builder& b, int64_t hidden, int64_t patches) {
  nn::SourcePtr stored = (b / "weight").Find({hidden, hidden * patches});
  if (stored == nullptr) return {};
  return nn::Linear(b.PackWeight({b.OrFail(AsChannelsLastMatrix(std::move(stored), hidden))},
                                 WeightUse::kLinear));
}

class PixtralEncoder final : public ImageEncoder {
 public:
  PixtralEncoder(const nn::Builder& top, const PixtralConfig& c, const PixtralOutput& output,
                 nn::Rope rope)
      : c_(c),
        merges_(output.merges),
        rope_(std::move(rope)),
        sections_(AxialSections(c.attention.head_dim)),
        patch_embedding_(MakePatchEmbedding(
            top / "vision_tower.patch_conv",
            {c.attention.hidden_size, 3, c.patch_size, c.patch_size}, /*bias=*/false)),
        projector_(top / "multi_modal_projector", output.projector, c.attention.hidden_size,
                   output.hidden_size) {
    const int64_t hidden = c.attention.hidden_size;
    const int32_t squares = c.side / c.merge_size;  // per side
    spec_ = GridEncoderSpec(squares * squares, c.merge_size * c.merge_size,
                            3 * c.patch_size * c.patch_size, output.hidden_size);
    const nn::Builder b = top / "vision_tower";
    pre_norm_ = nn::Norm(b / "ln_pre", hidden, kNorm);
    for (int32_t i = 0; i < c.used_layers && b.ok(); ++i) {
      layers_.push_back(MakeLayer(b / "transformer.layers" / i, c));
    }
    for (int32_t i = c.used_layers; i < c.num_layers; ++i) {
      b.Skip(fmt::format("transformer.layers.{}.", i));
    }
    if (merges_) {
      const nn::Builder projector = top / "multi_modal_projector";
      merger_norm_ = nn::Norm(projector / "norm", hidden, {.eps = output.norm_eps});
      merger_ = MakeMerger(projector / "patch_merger.merging_layer", hidden, spec_.tokens_per_row);
    } else {
      b.Needs(Capability::kAddResidual);
    }
  }

  Result<ImageLayout> Layout(const ImageView& image) const override {
    const int64_t unit = int64_t{c_.patch_size} * c_.merge_size;
    const std::vector<int64_t> expected = {1, 3, image.grid_height * unit, image.grid_width * unit};
    if (image.grid_height < 1 || image.grid_width < 1 ||
        !std::equal(expected.begin(), expected.end(), image.shape.begin(), image.shape.end())) {
      return InvalidArgument(
          "an image was prepared as {} x {} squares, which are not those of {} x {} pixels that "
          "the model takes: processor_config.json does not fit config.json",
          image.grid_height, image.grid_width, unit, unit);
    }
    const int32_t most = c_.side / c_.merge_size;
    if (std::max(image.grid_height, image.grid_width) > most) {
      return InvalidArgument("an image has {} x {} pixels, of at most {} x {}; make it smaller",
                             expected[3], expected[2], most * unit, most * unit);
    }
    return LayOutGrid(image.grid_height, image.grid_width, c_.merge_size);
  }

  void Unfold(const ImageView& image, std::span<float> patches) const override {
    const auto patch = static_cast<size_t>(c_.patch_size),
               merge = static_cast<size_t>(c_.merge_size);
    const auto height = static_cast<size_t>(image.grid_height) * merge;  // in patches
    const auto width = static_cast<size_t>(image.grid_width) * merge;
    float* out = patches.data();
    for (size_t y = 0; y < height; y += merge) {
      for (size_t x = 0; x < width; x += merge) {
        for (size_t i = 0; i < merge * merge; ++i) {
          out = UnfoldPatch({image.values.data(), height * patch, width * patch},
                            (y + i / merge) * patch, (x + i % merge) * patch, patch, out);
        }
      }
    }
  }

  Tensor Forward(nn::Pass& pass, Tensor patches) const override {
    const int64_t hidden = c_.attention.hidden_size, num_rows = pass.logit_rows.cols();
    Tensor rows = pass.arena.Allocate(DType::kF32, {num_rows, spec_.row_size});
    const ArenaScope scope(pass.arena);
    const RopeTable rope = nn::TokenRope(pass, rope_.table(), sections_);
    pass.token_rope = &rope;
    Residual h(pass, hidden);
    Embed(pass, patches, h.first());
    for (const PreNorm& layer : layers_) layer.Forward(h);
    pass.token_rope = nullptr;
    Tensor features = pass.arena.Allocate(DType::kF32, {num_rows, hidden});
    if (merges_) {
      const Tensor squares = NormalizeSquares(pass, h, merger_norm_, hidden, spec_.tokens_per_row,
                                              merger_.activation());
      merger_.Forward(pass, squares, features);
    } else {
      h.Gather(pass.logit_rows, features);
    }
    projector_.Forward(pass, features, rows);
    return rows;
  }

 private:
  void Embed(nn::Pass& pass, Tensor patches, Tensor h) const {
    const ArenaScope scope(pass.arena);
    Tensor embedded = pass.arena.Allocate(DType::kF32, h.shape);
    EmbedPatches(pass, patch_embedding_, patches, embedded);
    pre_norm_.Forward(pass, embedded, h);
  }

  const PixtralConfig c_;
  const bool merges_;
  const nn::Rope rope_;
  const std::vector<nn::RopeSection> sections_;
  const nn::Linear patch_embedding_;
  nn::Norm pre_norm_;
  std::vector<PreNorm> layers_;
  nn::Norm merger_norm_;
  nn::Linear merger_;
  const Projector projector_;
};

}  // namespace

bool HasPixtral(const ConfigReader& outer) {
  const std::string* const type = outer["vision_config"]["model_type"].value().AsString();
  return type != nullptr && *type == "pixtral";
}

PixtralConfig ParsePixtral(ConfigReader& outer, int32_t merge_size, int32_t feature_layer) {
  ConfigReader vision = outer.Part("vision_config");
  vision.ExpectOrAbsent("model_type", "pixtral");
  PixtralConfig c;
  c.merge_size = merge_size;
  // The defaults of the reference's class; published files leave fields out.
  vision.SetDefault("hidden_size", 1024);
  vision.SetDefault("num_attention_heads", 16);
  c.attention = ParseMultiHeadAttention(vision, "hidden_size", "num_attention_heads");
  vision.ExpectOrAbsent("head_dim", c.attention.head_dim);
  if (c.attention.head_dim % 2 != 0) {
    vision.Fail("num_attention_heads", fmt::format("makes heads of {} dimensions, but rotations "
                                                   "need an even number",
                                                   c.attention.head_dim));
    c.attention.head_dim = 2;
  }
  c.mlp = {.hidden_size = c.attention.hidden_size,
           .intermediate_size = vision.IntOr("intermediate_size", 4096, kIntermediateSizes),
           .activation = ParseVisionActivation(vision, "hidden_act", "gelu")};
  c.num_layers = vision.IntOr("num_hidden_layers", 24, Positive(10000));
  c.theta = ParseTheta(vision);
  c.patch_size = vision.IntOr("patch_size", 16, kSides);
  const int32_t image_size = vision.IntOr("image_size", 1024, kSides);
  c.side = image_size / c.patch_size;
  if (c.side < c.merge_size) {
    vision.Fail("image_size", fmt::format("{} is less than a row's patch_size {} · {}", image_size,
                                          c.patch_size, c.merge_size));
    c.side = c.merge_size;
  }
  vision.ExpectOrAbsent("num_channels", 3);
  const std::vector<int32_t> layers = ParseFeatureLayers(outer, c.num_layers, feature_layer);
  c.used_layers = layers.front();
  if (layers.size() > 1) {
    outer.Fail("vision_feature_layer", "has several layers, of which this tower gives one");
  }
  return c;
}

Status AddPixtral(Model& model, nn::WeightLoad& load, const PixtralConfig& c,
                  const PixtralOutput& output) {
  nn::RopeSpec spec;
  spec.theta = c.theta;
  spec.rotary_dim = c.attention.head_dim;
  spec.even_first = true;
  ASSIGN_OR_RETURN(nn::Rope rope, nn::Rope::Make(spec, c.side, *load.ops));
  AddImageEncoder(model, load, output.image_token, [&] {
    return std::make_unique<PixtralEncoder>(nn::Builder(load), c, output, std::move(rope));
  });
  return Status();
}

Result<std::unique_ptr<Model>> CreateMistral3(ConfigReader reader, nn::WeightLoad& load,
                                              const LoadOptions& options) {
  ConfigReader text_reader = OpenTextConfig(reader, "mistral");
  ASSIGN_OR_RETURN(DecoderConfig text, ParseMistral(text_reader));
  ParseOuterTie(reader, text);
  const int32_t merge_size = reader.IntOr("spatial_merge_size", 2, Positive(16));
  const PixtralConfig vision = ParsePixtral(reader, merge_size, -1);
  const PixtralOutput output = {
      .projector = ParseProjector(reader, /*bias=*/false),
      .merges = true,
      .norm_eps = text.norm.eps,
      .hidden_size = text.hidden_size,
      .image_token = reader.IntOr("image_token_index", 10, NonNegative(text.vocab_size - 1))};
  reader.ExpectOrAbsent("image_token_id", output.image_token);
  RETURN_IF_ERROR(reader.Finish());
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(std::move(text), load, options));
  if (options.task == Task::kEmbed) {  // texts only
    const nn::Builder b(load);
    b.Skip("vision_tower.");
    b.Skip("multi_modal_projector.");
    return model;
  }
  RETURN_IF_ERROR(AddPixtral(*model, load, vision, output));
  return model;
}

}  // namespace tokamak
