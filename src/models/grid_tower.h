// Parts of vision towers that take images of about their own size and aspect ratio: patches form a
// grid, whose positions have a row and a column, and each square of merge x merge patches becomes a
// row for the language model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/decoder.h"
#include "models/image_encoder.h"
#include "models/layer.h"
#include "models/model.h"
#include "models/position_table.h"
#include "models/registry.h"
#include "nn/attention.h"
#include "nn/builder.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pass.h"
#include "nn/rope.h"
#include "weights/config_reader.h"

namespace tokamak {

// The squares of an image in the order in which the tower takes them.
struct SquareOrder {
  std::vector<int32_t> squares;      // each counted row by row
  std::vector<int32_t> window_lens;  // squares; empty without windows
};

// The order of height x width squares, row by row. With windows of `window` squares per side (0:
// none), row by row within each window.
SquareOrder OrderSquares(int32_t height, int32_t width, int32_t window);

// The layout of an image of height x width squares: one sequence, in OrderSquares; the patches of a
// square follow each other, row by row. Its rope_positions are the patches' rows and columns.
ImageLayout LayOutGrid(int32_t height, int32_t width, int32_t merge, int32_t window = 0);

// For images of up to `max_rows` squares of `patches` patches each. `patch_values`, `row_size`: as
// in ImageEncoderSpec.
ImageEncoderSpec GridEncoderSpec(int32_t max_rows, int32_t patches, int32_t patch_values,
                                 int32_t row_size);

// Returns norm(h) of the squares whose first patches are pass.logit_rows, their patches side by
// side: [R, patches · size], of this type, in the pass's arena. h is f32 [T, size].
Tensor NormalizeSquares(nn::Pass& pass, const Residual& h, const nn::Norm& norm, int64_t size,
                        int32_t patches, DType type);

struct GridTowerConfig {
  int32_t num_layers = 0;
  int32_t patch_size = 0;
  int32_t frames = 0;  // of a patch; those of an image are equal
  int32_t merge_size = 0;
  nn::AttentionConfig attention;
  double theta = 0;
  int32_t window = 0;    // of layers with windows: squares per side; 0: no layer has windows
  int32_t row_size = 0;  // ImageEncoderSpec::row_size

  int32_t merged() const { return merge_size * merge_size; }  // patches per row
  int32_t patch_values() const { return 3 * frames * patch_size * patch_size; }
  // Returns the shape of the patch embedding's weight.
  Shape PatchShape() const { return {attention.hidden_size, 3, frames, patch_size, patch_size}; }
};

// Opens vision_config, whose model_type, if any, is `type` with or without "_vision" behind it.
ConfigReader OpenVisionConfig(ConfigReader& outer, const std::string& type);

// Reads the fields that these towers share, the attention's from the fields of these names. The
// family sets the defaults of depth and patch_size before, and windows and row_size afterwards.
GridTowerConfig ParseGridTower(ConfigReader& vision, const char* hidden_size,
                               const char* num_heads);
// The field with the size of the tower's rows, which must be the text model's.
void ExpectRowSize(ConfigReader& vision, const char* field, int32_t absent, int32_t text_size);

// The towers of models with mRoPE. Queries and keys rotate by the row and the column of their
// patch.
class GridTower : public ImageEncoder {
 public:
  Result<ImageLayout> Layout(const ImageView& image) const override;
  void Unfold(const ImageView& image, std::span<float> patches) const override;
  Tensor Forward(nn::Pass& pass, Tensor patches) const override;

 protected:
  // `rope` is MakeGridRope's; `positions` may be empty.
  GridTower(const GridTowerConfig& c, nn::Rope rope, PositionTable positions = {});

  const PositionTable& positions() const { return positions_; }

  // h = the embeddings of patches; runs the layers, and writes the rows of pass.logit_rows, f32 [R,
  // row_size]. The layers rotate by pass.token_rope.
  virtual void Run(nn::Pass& pass, Tensor patches, Residual& h, Tensor rows) const = 0;

 private:
  const GridTowerConfig c_;
  const nn::Rope rope_;
  const std::vector<nn::RopeSection> sections_;
  const PositionTable positions_;
};

// Rotations by rows, and by columns, for a quarter of a head's dimensions each.
Result<nn::Rope> MakeGridRope(const GridTowerConfig& c, Ops& ops);

// Gives the model a tower, which is made from the weights below "visual" and from `config`, whose
// member `grid` is its GridTowerConfig. A model that embeds gets none: it takes texts only.
template <typename Tower, typename Config>
Status AddGridTower(Model& model, nn::WeightLoad& load, const LoadOptions& options,
                    int32_t image_token, const Config& config) {
  const nn::Builder b(load);
  if (options.task == Task::kEmbed) {
    b.Skip("visual.");
    return Status();
  }
  ASSIGN_OR_RETURN(nn::Rope rope, MakeGridRope(config.grid, *load.ops));
  AddImageEncoder(model, load, image_token,
                  [&] { return std::make_unique<Tower>(b / "visual", config, std::move(rope)); });
  return Status();
}

// A checkpoint's names for the parts of a merger.
struct MergerNames {
  std::string_view norm, up, down;
};

// Makes a row of each square of patches: linear(gelu(linear(norm(h)))).
class PatchMerger {
 public:
  enum class NormOf {
    kPatch,
    kSquare,  // all values of a square together
  };

  PatchMerger() = default;
  PatchMerger(const nn::Builder& b, const MergerNames& names, const GridTowerConfig& c,
              const nn::NormConfig& norm, NormOf norm_of, int64_t row_size);

  // The rows of the squares that begin with pass.logit_rows: f32 [R, row_size], which may be
  // columns of a wider tensor. With NormOf::kPatch, `h` cannot be used any more.
  void Forward(nn::Pass& pass, const Residual& h, Tensor rows) const;

 private:
  int64_t hidden_size_ = 0;
  int32_t merged_ = 0;
  NormOf norm_of_ = NormOf::kPatch;
  nn::Norm norm_;
  nn::Linear up_, down_;
};

}  // namespace tokamak
