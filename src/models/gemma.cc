// Gemma 2 and Gemma 3: pre-norms and post-norms, windows in most layers. Gemma 2 caps scores and
// logits; Gemma 3 instead normalizes the heads of queries and keys, and layers with a window have
// their own RoPE base. Gemma 3 also has a form that sees: with SigLIP's tower, and with images
// whose tokens see each other. Reports: arXiv:2408.00118, arXiv:2503.19786. Reference:
// transformers, models/gemma2 and models/gemma3.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "models/image_encoder.h"
#include "models/vision_tower.h"
#include "nn/linear.h"
#include "weights/reordered.h"

namespace tokamak {
namespace {

// Shared by both. The reference's default sizes are those of one model; here sizes are required.
DecoderConfig ParseCommon(ConfigReader& reader, bool rope_apart) {
  DecoderConfig c = ParseDecoder(reader, {.rope_apart = rope_apart,
                                          .tie_word_embeddings = true,
                                          .activation = "hidden_activation",
                                          .absent_activation = "gelu_pytorch_tanh"});
  if (!reader.Has("head_dim")) reader.Fail("head_dim", "is missing; this architecture needs it");
  c.norm.offset = 1;
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_size));
  const double scalar = reader.NumberOr("query_pre_attn_scalar", 256);
  c.attention.scale = static_cast<float>(1 / std::sqrt(scalar));
  // Files may have both names of the activation.
  const std::string activation = reader.StringOr("hidden_activation", "gelu_pytorch_tanh");
  reader.ExpectOrAbsent("hidden_act", activation);
  reader.ExpectOrAbsent("use_bidirectional_attention", false);
  reader.Ignore({"cache_implementation"});
  return c;
}

// `extras`: Gemma 2 caps the scores, Gemma 3 normalizes queries and keys.
MakeLayer MakeGemmaLayer(const nn::AttentionExtras& extras) {
  return [extras](const LayerBuilder& b) {
    return SandwichNorm{b.Norm("input_layernorm"),
                        b.Attention("self_attn", extras),
                        b.Norm("post_attention_layernorm"),
                        b.Norm("pre_feedforward_layernorm"),
                        b.FeedForward("mlp"),
                        b.Norm("post_feedforward_layernorm")};
  };
}

// Null means no cap.
float ParseCap(ConfigReader& reader, std::string_view name, double absent) {
  if (reader.IsNull(name)) absent = 0;
  return static_cast<float>(reader.NumberOr(name, absent));
}

// The RoPE of layers without a window, and of those with one. Files have an object for each. Older
// files have separate fields, whose rope_scaling is for layers without a window. An object without
// a base takes it from the older fields.
std::vector<nn::RopeSpec> ParseRopes(ConfigReader& reader, const DecoderConfig& c) {
  constexpr NumberRange kBases = {1.0001, 1e15};
  const nn::RopeDefaults global = {.theta = reader.NumberOr("rope_theta", 1e6, kBases)};
  const nn::RopeDefaults local = {.theta = reader.NumberOr("rope_local_base_freq", 1e4, kBases)};
  const int32_t head_dim = c.attention.head_dim;
  const auto positions = reader.Int("max_position_embeddings");
  if (!reader.Has("rope_parameters")) {
    return {nn::ParseRope(reader, head_dim, positions, global),
            nn::ParseRopeObject(reader, nullptr, head_dim, positions, local)};
  }
  ConfigReader both = reader.Object("rope_parameters");
  const auto parse = [&](std::string_view name, const nn::RopeDefaults& defaults) {
    std::optional<ConfigReader> one;
    if (both.Has(name)) one = both.Object(name);
    return nn::ParseRopeObject(reader, one ? &*one : nullptr, head_dim, positions, defaults);
  };
  return {parse("full_attention", global), parse("sliding_attention", local)};
}

}  // namespace

Result<DecoderConfig> ParseGemma2(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader, /*rope_apart=*/false);
  c.logit_softcap = ParseCap(reader, "final_logit_softcapping", 30);
  c.layer = MakeGemmaLayer({.softcap = ParseCap(reader, "attn_logit_softcapping", 50)});
  ParseSlidingLayers(reader, c, reader.IntOr("sliding_window", 4096),
                     [](int32_t i) { return i % 2 == 0; });
  return reader.Finish(c);
}

Result<DecoderConfig> ParseGemma3(ConfigReader reader) {
  DecoderConfig c = ParseCommon(reader, /*rope_apart=*/true);
  c.ropes = ParseRopes(reader, c);
  c.layer = MakeGemmaLayer({.qk_norm = c.norm});
  c.logit_softcap = ParseCap(reader, "final_logit_softcapping", 0);
  // The reference reads this field but does not use it.
  reader.ExpectOrAbsent("attn_logit_softcapping", JsonValue());
  const int32_t pattern = reader.IntOr("sliding_window_pattern", 6);
  ParseSlidingLayers(reader, c, reader.IntOr("sliding_window", 4096),
                     [=](int32_t i) { return (i + 1) % pattern != 0; });
  for (DecoderLayer& layer : c.layers) layer.rope = layer.window > 0 ? 1 : 0;
  reader.Ignore({"_sliding_window_pattern"});
  return reader.Finish(c);
}

namespace {

struct VisionConfig {
  DecoderConfig text;
  VisionTowerConfig tower;
  int32_t image_token = 0, image_mark = 0, image_end = 0;
};

Result<VisionConfig> ParseVision(ConfigReader reader) {
  VisionConfig c;
  ConfigReader text = OpenTextConfig(reader, "gemma3_text");
  // Published files leave out fields that equal the class's defaults, for example the 4B model's
  // attention sizes and context. All files state the sizes of the layers.
  text.SetDefault("vocab_size", 262208);
  text.SetDefault("num_attention_heads", 8);
  text.SetDefault("num_key_value_heads", 4);
  text.SetDefault("head_dim", 256);
  text.SetDefault("max_position_embeddings", 131072);
  text.SetDefault("rms_norm_eps", 1e-6);
  ASSIGN_OR_RETURN(c.text, ParseGemma3(text));
  ParseOuterTie(reader, c.text);
  c.tower = ParseVisionTower(reader, "siglip_vision_model");
  if (c.tower.clip) reader.Fail("vision_config", "is CLIP's; this architecture needs SigLIP's");
  const int32_t rows = reader.IntOr("mm_tokens_per_image", 256, Positive(1 << 20));
  const auto side = static_cast<int32_t>(std::lround(std::sqrt(rows)));
  if (side * side != rows || c.tower.grid() % side != 0) {
    reader.Fail(
        "mm_tokens_per_image",
        fmt::format("is {}, but must be the square of a divisor of {}, the patches per side "
                    "(image_size / patch_size)",
                    rows, c.tower.grid()));
    c.tower.square = 1;
  } else {
    c.tower.square = c.tower.grid() / side;
  }
  const IntRange ids = NonNegative(c.text.vocab_size - 1);
  c.image_token = reader.IntOr("image_token_index", 262144, ids);
  c.image_mark = reader.IntOr("boi_token_index", 255999, ids);
  c.image_end = reader.IntOr("eoi_token_index", 256000, ids);
  return reader.Finish(std::move(c));
}

// The tower's features, averaged over squares of patches, which become the rows of an image; a
// norm, and a matrix to the text model's size.
class GemmaEncoder final : public ImageEncoder {
 public:
  GemmaEncoder(const nn::Builder& b, const VisionConfig& c)
      : shape_{1, 3, c.tower.image_size, c.tower.image_size},
        square_(c.tower.square_patches()),
        tower_(b / "vision_tower", c.tower) {
    const nn::Builder projector = b / "multi_modal_projector";
    const int64_t size = c.tower.attention.hidden_size;
    // It normalizes sums instead of averages.
    norm_ =
        nn::Norm(projector / "mm_soft_emb_norm", size,
                 {.eps = c.tower.norm.eps * static_cast<float>(square_ * square_), .offset = 1});
    // Stored transposed.
    nn::SourcePtr stored =
        (projector / "mm_input_projection_weight").Find({size, c.text.hidden_size});
    if (stored != nullptr) {
      projection_ = nn::Linear(projector.PackWeight(
          {projector.OrFail(Transposed(std::move(stored), 0, size))}, WeightUse::kLinear));
    }
    const int32_t tokens = c.tower.num_tokens();
    spec_ = {.patch_size = c.tower.patch_values(),
             .row_size = c.text.hidden_size,
             .max_sequence_len = tokens,
             .max_image_tokens = tokens,
             .max_image_rows = tokens / square_,
             .tokens_per_row = square_};
  }

  Result<ImageLayout> Layout(const ImageView& image) const override {
    if (!std::equal(shape_.begin(), shape_.end(), image.shape.begin(), image.shape.end())) {
      return InvalidArgument(
          "an image was prepared as [{}], but the model takes [{}]: preprocessor_config.json does "
          "not fit config.json",
          fmt::join(image.shape, ", "), fmt::join(shape_, ", "));
    }
    ImageLayout layout{.sequence_lens = {spec_.max_sequence_len}};
    layout.positions.resize(static_cast<size_t>(spec_.max_sequence_len));
    std::iota(layout.positions.begin(), layout.positions.end(), 0);
    for (int32_t i = 0; i < spec_.max_image_rows; ++i) layout.rows.push_back(i * square_);
    return layout;
  }

  void Unfold(const ImageView& image, std::span<float> patches) const override {
    tower_.Unfold(image.values, patches);
  }

  Tensor Forward(nn::Pass& pass, Tensor patches) const override {
    Tensor rows = pass.arena.Allocate(DType::kF32, {pass.logit_rows.cols(), spec_.row_size});
    const ArenaScope scope(pass.arena);
    const int64_t size = norm_.weight().cols();
    const Tensor squares = tower_.ForwardSquares(pass, patches);
    const Tensor sum = squares.Cols(0, size);
    for (int64_t i = 1; i < square_; ++i) {
      pass.ops.Run(AddResidual{.x = squares.Cols(i * size, (i + 1) * size), .residual = sum},
                   pass.stream);
    }
    Tensor normed = pass.arena.Allocate(projection_.activation(), sum.shape);
    norm_.Forward(pass, sum, normed);
    projection_.Forward(pass, normed, rows);
    return rows;
  }

 private:
  const std::vector<int32_t> shape_;  // of a prepared image
  const int32_t square_;              // patches that become a row
  const VisionTower tower_;
  nn::Norm norm_;
  nn::Linear projection_;
};

}  // namespace

Result<std::unique_ptr<Model>> CreateGemma3Vision(ConfigReader config, nn::WeightLoad& load,
                                                  const LoadOptions& options) {
  ASSIGN_OR_RETURN(const VisionConfig c, ParseVision(std::move(config)));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(c.text, load, options));
  const nn::Builder b(load);
  if (options.task == Task::kEmbed) {  // texts only
    b.Skip("vision_tower.");
    b.Skip("multi_modal_projector.");
    return model;
  }
  AddImageEncoder(*model, load, c.image_token,
                  [&] { return std::make_unique<GemmaEncoder>(b, c); });
  load.spec.image_mark = c.image_mark;
  load.spec.image_end = c.image_end;
  load.spec.cache.bidirectional_images = true;
  return model;
}

}  // namespace tokamak
