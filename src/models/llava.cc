// LLaVA: a vision tower, whose features a matrix (LLaVA 1, arXiv:2304.08485) or a small MLP (1.5,
// arXiv:2310.03744) projects to the hidden size of a text model. LLaVA-NeXT (1.6; Liu et al., 2024)
// takes a thumbnail and the image in tiles. Pixtral 12B is LLaVA with a tower of its own
// (models/pixtral.h). References: transformers, models/llava and models/llava_next.
#include "models/llava.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "models/families.h"
#include "models/fields.h"
#include "models/image_encoder.h"
#include "models/pixtral.h"
#include "models/projector.h"
#include "models/vision_tower.h"

namespace tokamak {
namespace {

struct Grid {
  int32_t height = 0, width = 0;
  friend bool operator==(const Grid&, const Grid&) = default;
};

struct Config {
  DecoderConfig text;
  VisionTowerConfig vision;
  std::optional<PixtralConfig> pixtral;  // instead of `vision`
  std::vector<Grid> grids;  // LLaVA-NeXT: the tiles into which an image may be cut; else none
  int32_t image_token = 0;
  bool drops_first = false;  // the first token of a tile, which is CLIP's class token
  ProjectorConfig projector;
};

// Sizes that published text_configs leave out, because they equal the defaults of the class.
struct TextDefaults {
  const char* model_type;
  int32_t vocab_size, intermediate_size, num_kv_heads, max_positions;
  ParseDecoderFamily* parse;
};
constexpr TextDefaults kTextModels[] = {
    {"llama", 32000, 11008, 0, 2048, &ParseLlama},
    {"mistral", 32000, 14336, 8, 131072, &ParseMistral},
    {"qwen2", 151936, 22016, 32, 32768, &ParseQwen2},
};

Result<DecoderConfig> ParseText(ConfigReader& outer) {
  ConfigReader text = outer.Part("text_config");
  const std::string type = text.StringOr("model_type", "llama");
  const auto* const known =
      std::find_if(std::begin(kTextModels), std::end(kTextModels),
                   [&](const auto& model) { return model.model_type == type; });
  if (known == std::end(kTextModels)) {
    text.Fail("model_type", "\"" + type +
                                "\" is not supported as the text model of this architecture; "
                                "supported are \"llama\", \"mistral\" and \"qwen2\"");
    return text.status();
  }
  text.SetDefault("vocab_size", known->vocab_size);
  text.SetDefault("hidden_size", 4096);
  text.SetDefault("intermediate_size", known->intermediate_size);
  text.SetDefault("num_hidden_layers", 32);
  text.SetDefault("num_attention_heads", 32);
  if (known->num_kv_heads > 0) text.SetDefault("num_key_value_heads", known->num_kv_heads);
  text.SetDefault("hidden_act", "silu");
  text.SetDefault("max_position_embeddings", known->max_positions);
  text.SetDefault("rms_norm_eps", 1e-6);
  return known->parse(text);
}

// LLaVA-NeXT: image_grid_pinpoints, in tiles.
std::vector<Grid> ParseGrids(ConfigReader& reader, const VisionTowerConfig& vision) {
  constexpr size_t kMost = 1000;
  constexpr int32_t kMaxSide = 1 << 12;  // as for images
  std::vector<Grid> grids;
  const int32_t side = vision.image_size;
  const JsonReader field = reader["image_grid_pinpoints"];
  const auto add = [&](int32_t height, int32_t width) {
    grids.push_back({height / side, width / side});
    if (height % side == 0 && width % side == 0) return;
    field.Fail(fmt::format("has {} x {}, which tiles of {} pixels (image_size) do not fill", height,
                           width, side));
  };
  if (!field.present()) {
    for (const auto& [height, width] :
         {std::pair{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}) {
      add(height, width);
    }
    return grids;
  }
  field.ForEach(kMost, [&](const JsonReader& pair) {
    if (pair.Size() != 2) return pair.Bad("a height and a width");
    add(static_cast<int32_t>(pair[0].Int(1, kMaxSide)),
        static_cast<int32_t>(pair[1].Int(1, kMaxSide)));
  });
  if (grids.empty()) field.Bad("at least one resolution");
  return grids;
}

Result<Config> ParseConfig(ConfigReader reader, bool next) {
  Config c;
  ASSIGN_OR_RETURN(c.text, ParseText(reader));
  ParseEitherTie(reader, c.text);
  if (!next && HasPixtral(reader)) {
    c.pixtral = ParsePixtral(reader, /*merge_size=*/1, /*feature_layer=*/-2);
  } else {
    c.vision = ParseVisionTower(reader);
    c.vision.feature_layers = ParseFeatureLayers(reader, c.vision.num_layers, -2);
  }
  c.image_token = reader.IntOr("image_token_index", 32000, NonNegative(c.text.vocab_size - 1));
  reader.ExpectOrAbsent("image_token_id", c.image_token);
  const std::string select = reader.StringOr("vision_feature_select_strategy", "default");
  c.drops_first = select == "default";
  if (!c.drops_first && select != "full") {
    reader.Fail("vision_feature_select_strategy", "\"" + select + "\" is not supported");
  } else if (c.drops_first && c.pixtral) {
    reader.Fail("vision_feature_select_strategy", "must be \"full\" for a tower of Pixtral");
  }
  if (next) {
    c.grids = ParseGrids(reader, c.vision);
    if (c.drops_first != c.vision.clip) {
      reader.Fail("vision_feature_select_strategy",
                  "\"" + select + "\" does not give one feature per patch of this tower");
    }
    reader.ExpectOrAbsent("use_image_newline_parameter", true);
  }
  c.projector = ParseProjector(reader, /*bias=*/true);
  // The rows of an image follow from the tower; the others are for training and older versions.
  reader.Ignore({"ignore_index", "image_seq_length", "vocab_size"});
  return reader.Finish(std::move(c));
}

class LlavaEncoder final : public ImageEncoder {
 public:
  LlavaEncoder(const nn::Builder& b, const Config& c)
      : image_size_(c.vision.image_size),
        drops_first_(c.drops_first),
        tower_(b / "vision_tower", c.vision),
        projector_(b / "multi_modal_projector", c.projector, c.vision.num_features(),
                   c.text.hidden_size),
        num_features_(c.vision.num_features()),
        patches_(c.vision.grid()),
        grids_(c.grids) {
    const int32_t tokens = c.vision.num_tokens();
    spec_ = {.patch_size = c.vision.patch_values(),
             .row_size = c.text.hidden_size,
             .max_sequence_len = tokens,
             .max_image_tokens = tokens,
             .max_image_rows = tokens - (drops_first_ ? 1 : 0)};
    const int32_t thumbnail_rows = spec_.max_image_rows;
    for (const Grid& grid : grids_) {
      const int32_t tiles = grid.height * grid.width;
      const int32_t grid_rows = grid.height * patches_ * (grid.width * patches_ + 1);
      spec_.max_image_tokens = std::max(spec_.max_image_tokens, (1 + tiles) * tokens);
      spec_.max_image_rows = std::max(spec_.max_image_rows, thumbnail_rows + grid_rows);
    }
    if (!grids_.empty()) newline_ = (b / "image_newline").ReadVector(c.text.hidden_size);
  }

  Result<ImageLayout> Layout(const ImageView& image) const override {
    const Grid grid{image.grid_height, image.grid_width};
    if (!grids_.empty() && std::find(grids_.begin(), grids_.end(), grid) == grids_.end()) {
      return InvalidArgument(
          "an image was cut into {} x {} tiles, which image_grid_pinpoints does not allow: "
          "preprocessor_config.json does not fit config.json",
          grid.height, grid.width);
    }
    const int32_t num_tiles = grids_.empty() ? 1 : 1 + grid.height * grid.width;
    const std::vector<int32_t> expected = {num_tiles, 3, image_size_, image_size_};
    if (!std::equal(expected.begin(), expected.end(), image.shape.begin(), image.shape.end())) {
      return InvalidArgument(
          "an image was prepared as {}, but the model takes {}: preprocessor_config.json does not "
          "fit config.json",
          Describe(image.shape), Describe(expected));
    }
    ImageLayout layout;
    layout.sequence_lens.assign(static_cast<size_t>(num_tiles), spec_.max_sequence_len);
    for (int32_t i = 0; i < num_tiles * spec_.max_sequence_len; ++i) {
      layout.positions.push_back(i % spec_.max_sequence_len);
    }
    for (int32_t i = first_token(); i < spec_.max_sequence_len; ++i) layout.rows.push_back(i);
    if (grids_.empty()) return layout;
    if (image.image_height < 1 || image.image_width < 1) {
      return InvalidArgument("an image comes without the size that it had before it was prepared");
    }
    AddGrid(image, layout.rows);
    return layout;
  }

  void Unfold(const ImageView& image, std::span<float> patches) const override {
    tower_.Unfold(image.values, patches);
  }

  Tensor newline() const override { return newline_.tensor; }

  Tensor Forward(nn::Pass& pass, Tensor patches) const override {
    const int64_t num_rows = pass.logit_rows.cols();
    Tensor rows = pass.arena.Allocate(DType::kF32, {num_rows, spec_.row_size});
    const ArenaScope scope(pass.arena);
    Tensor features = pass.arena.Allocate(DType::kF32, {num_rows, num_features_});
    tower_.Forward(pass, patches, features);
    projector_.Forward(pass, features, rows);
    return rows;
  }

 private:
  int32_t first_token() const { return drops_first_ ? 1 : 0; }  // of a tile that becomes a row

  // LLaVA-NeXT: the features of the tiles side by side, without those of padding, and a newline at
  // the end of each line of them.
  void AddGrid(const ImageView& image, std::vector<int32_t>& rows) const {
    const FeatureRegion region =
        UnpaddedFeatures(image.image_height, image.image_width, image.grid_height * patches_,
                         image.grid_width * patches_);
    for (int32_t y = region.top; y < region.top + region.height; ++y) {
      for (int32_t x = region.left; x < region.left + region.width; ++x) {
        const int32_t tile = 1 + y / patches_ * image.grid_width + x / patches_;
        const int32_t patch = y % patches_ * patches_ + x % patches_;
        rows.push_back(tile * spec_.max_sequence_len + first_token() + patch);
      }
      rows.push_back(ImageLayout::kNewline);
    }
  }

  static std::string Describe(std::span<const int32_t> shape) {
    std::string text;
    for (const int32_t n : shape) text += fmt::format("{}{}", text.empty() ? "[" : ", ", n);
    return text.empty() ? "[]" : text + "]";
  }

  const int32_t image_size_;
  const bool drops_first_;
  const VisionTower tower_;
  const Projector projector_;
  const int64_t num_features_;
  const int32_t patches_;  // per side of a tile
  // LLaVA-NeXT's; else empty.
  const std::vector<Grid> grids_;
  nn::OwnedTensor newline_;
};

Result<std::unique_ptr<Model>> Create(const Config& c, nn::WeightLoad& load,
                                      const LoadOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, MakeDecoder(c.text, load, options));
  const nn::Builder b(load);
  if (options.task == Task::kEmbed) {  // texts only
    b.Skip("vision_tower.");
    b.Skip("multi_modal_projector.");
    b.Skip("image_newline");
    return model;
  }
  if (c.pixtral) {
    RETURN_IF_ERROR(AddPixtral(*model, load, *c.pixtral,
                               {.projector = c.projector,
                                .hidden_size = c.text.hidden_size,
                                .image_token = c.image_token}));
    return model;
  }
  AddImageEncoder(*model, load, c.image_token,
                  [&] { return std::make_unique<LlavaEncoder>(b, c); });
  return model;
}

}  // namespace

FeatureRegion UnpaddedFeatures(int32_t image_height, int32_t image_width, int32_t grid_height,
                               int32_t grid_width) {
  FeatureRegion region{0, 0, grid_height, grid_width};
  // transformers rounds to 7 decimals, then down.
  const auto scaled = [](int32_t side, double scale) {
    return static_cast<int32_t>(std::floor((side * scale) + 0.5e-7));
  };
  if (static_cast<double>(image_width) / image_height >
      static_cast<double>(grid_width) / grid_height) {
    const double scale = static_cast<double>(grid_width) / image_width;
    region.top = (grid_height - scaled(image_height, scale)) / 2;
    region.height -= 2 * region.top;
  } else {
    const double scale = static_cast<double>(grid_height) / image_height;
    region.left = (grid_width - scaled(image_width, scale)) / 2;
    region.width -= 2 * region.left;
  }
  return region;
}

Result<std::unique_ptr<Model>> CreateLlava(ConfigReader config, nn::WeightLoad& load,
                                           const LoadOptions& options) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config), /*next=*/false));
  return Create(c, load, options);
}

Result<std::unique_ptr<Model>> CreateLlavaNext(ConfigReader config, nn::WeightLoad& load,
                                               const LoadOptions& options) {
  ASSIGN_OR_RETURN(const Config c, ParseConfig(std::move(config), /*next=*/true));
  return Create(c, load, options);
}

}  // namespace tokamak
