#include "models/grid_tower.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "models/fields.h"

namespace tokamak {
namespace {

// Patches of the largest image: 1,280 rows with the published sizes, as the class of Qwen2-VL's
// reference prepares images by default.
constexpr int32_t kMaxPatches = 5120;
constexpr IntRange kPatchSizes = Positive(1 << 10), kFewPatches = Positive(16);

}  // namespace

SquareOrder OrderSquares(int32_t height, int32_t width, int32_t window) {
  SquareOrder order;
  const int32_t side = window > 0 ? window : std::max(height, width);
  for (int32_t top = 0; top < height; top += side) {
    for (int32_t left = 0; left < width; left += side) {
      const int32_t bottom = std::min(top + side, height), right = std::min(left + side, width);
      for (int32_t y = top; y < bottom; ++y) {
        for (int32_t x = left; x < right; ++x) order.squares.push_back(y * width + x);
      }
      if (window > 0) order.window_lens.push_back((bottom - top) * (right - left));
    }
  }
  return order;
}

ImageLayout LayOutGrid(int32_t height, int32_t width, int32_t merge, int32_t window) {
  const SquareOrder order = OrderSquares(height, width, window);
  const int32_t patches = merge * merge;  // per square
  const auto num_tokens = static_cast<int32_t>(order.squares.size()) * patches;
  ImageLayout layout{.sequence_lens = {num_tokens},
                     .rope_positions = std::vector<std::vector<int32_t>>(2)};
  layout.positions.resize(static_cast<size_t>(num_tokens));
  std::iota(layout.positions.begin(), layout.positions.end(), 0);
  layout.rows.resize(order.squares.size());
  for (size_t i = 0; i < order.squares.size(); ++i) {
    const int32_t square = order.squares[i];
    layout.rows[static_cast<size_t>(square)] = static_cast<int32_t>(i) * patches;
    for (int32_t patch = 0; patch < patches; ++patch) {
      layout.rope_positions[0].push_back(square / width * merge + patch / merge);
      layout.rope_positions[1].push_back(square % width * merge + patch % merge);
    }
  }
  for (const int32_t squares : order.window_lens) layout.window_lens.push_back(squares * patches);
  return layout;
}

ImageEncoderSpec GridEncoderSpec(int32_t max_rows, int32_t patches, int32_t patch_values,
                                 int32_t row_size) {
  constexpr int32_t kFew = 16;  // rows of a small image
  return {.patch_size = patch_values,
          .row_size = row_size,
          .max_sequence_len = max_rows * patches,
          .max_image_tokens = max_rows * patches,
          .max_image_rows = max_rows,
          .tokens_per_row = patches,
          .rope_dimensions = 2,
          .min_sequence_len = kFew * patches};
}

Tensor NormalizeSquares(nn::Pass& pass, const Residual& h, const nn::Norm& norm, int64_t size,
                        int32_t patches, DType type) {
  Tensor squares = pass.arena.Allocate(type, {pass.logit_rows.cols(), patches * size});
  const ArenaScope scope(pass.arena);
  Tensor x = pass.arena.Allocate(type, {pass.num_tokens(), size});
  h.Normalize(norm, x);
  pass.ops.Run(
      GatherRows{.source = SideBySide(x, squares.cols()), .rows = pass.logit_rows, .out = squares},
      pass.stream);
  return squares;
}

ConfigReader OpenVisionConfig(ConfigReader& outer, const std::string& type) {
  ConfigReader vision = outer.Part("vision_config");
  const std::string found = vision.StringOr("model_type", type);  // older files have that one
  if (found != type && found != type + "_vision") {
    vision.Fail("model_type",
                "\"" + found + "\" is not supported; supported is \"" + type + "_vision\"");
  }
  return vision;
}

GridTowerConfig ParseGridTower(ConfigReader& vision, const char* hidden_size,
                               const char* num_heads) {
  GridTowerConfig c;
  c.attention = ParseMultiHeadAttention(vision, hidden_size, num_heads);
  if (c.attention.head_dim % 4 != 0) {
    vision.Fail(num_heads, fmt::format("makes heads of {} dimensions, but rotations by rows and "
                                       "columns need a multiple of 4",
                                       c.attention.head_dim));
    c.attention.head_dim = 4;
  }
  c.num_layers = vision.Int("depth", Positive(10000));
  c.patch_size = vision.Int("patch_size", kPatchSizes);
  c.frames = vision.IntOr("temporal_patch_size", 2, kFewPatches);
  c.merge_size = vision.IntOr("spatial_merge_size", 2, kFewPatches);
  c.theta = 10000;
  if (vision.Has("rope_parameters")) {
    const ConfigReader rope = vision.Object("rope_parameters");
    rope.ExpectOrAbsent("rope_type", "axial");
    c.theta = rope.NumberOr("rope_theta", c.theta, {1.0001, 1e15});
  }
  vision.ExpectOrAbsent("in_channels", 3);
  return c;
}

void ExpectRowSize(ConfigReader& vision, const char* field, int32_t absent, int32_t text_size) {
  if (const int32_t size = vision.IntOr(field, absent, kHiddenSizes); size != text_size) {
    vision.Fail(field,
                fmt::format("is {}, but the text model's hidden_size is {}", size, text_size));
  }
}

Result<nn::Rope> MakeGridRope(const GridTowerConfig& c, Ops& ops) {
  nn::RopeSpec spec;
  spec.theta = c.theta;
  spec.rotary_dim = c.attention.head_dim / 2;
  return nn::Rope::Make(spec, std::max(1, kMaxPatches / c.merge_size), ops);
}

GridTower::GridTower(const GridTowerConfig& c, nn::Rope rope, PositionTable positions)
    : c_(c),
      rope_(std::move(rope)),
      sections_{{0, 0, c.attention.head_dim / 4}, {1, 0, c.attention.head_dim / 4}},
      positions_(std::move(positions)) {
  spec_ = GridEncoderSpec(std::max(1, kMaxPatches / c.merged()), c.merged(), c.patch_values(),
                          c.row_size);
  spec_.position_taps = positions_.num_taps();
  spec_.max_window_len = c.window * c.window * c.merged();
  spec_.tokens_per_window = c.window * c.merged();
}

Result<ImageLayout> GridTower::Layout(const ImageView& image) const {
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
  if (positions_.num_taps() > 0) {
    for (size_t i = 0; i < layout.positions.size(); ++i) {
      positions_.Append(layout.rope_positions[0][i], layout.rope_positions[1][i], image.grid_height,
                        image.grid_width, layout);
    }
  }
  return layout;
}

void GridTower::Unfold(const ImageView& image, std::span<float> patches) const {
  const SquareOrder order =
      OrderSquares(image.grid_height / c_.merge_size, image.grid_width / c_.merge_size, c_.window);
  const size_t width = static_cast<size_t>(c_.merged()) * static_cast<size_t>(c_.patch_values());
  float* out = patches.data();
  for (const int32_t square : order.squares) {
    out = std::copy_n(image.values.data() + static_cast<size_t>(square) * width, width, out);
  }
}

Tensor GridTower::Forward(nn::Pass& pass, Tensor patches) const {
  Tensor rows = pass.arena.Allocate(DType::kF32, {pass.logit_rows.cols(), spec_.row_size});
  const ArenaScope scope(pass.arena);
  const RopeTable rope = nn::TokenRope(pass, rope_.table(), sections_);
  pass.token_rope = &rope;
  Residual h(pass, c_.attention.hidden_size);
  Run(pass, patches, h, rows);
  pass.token_rope = nullptr;
  return rows;
}

PatchMerger::PatchMerger(const nn::Builder& b, const MergerNames& names, const GridTowerConfig& c,
                         const nn::NormConfig& norm, NormOf norm_of, int64_t row_size)
    : hidden_size_(c.attention.hidden_size), merged_(c.merged()), norm_of_(norm_of) {
  b.Needs({Capability::kActivate, Capability::kGelu});
  if (norm_of == NormOf::kSquare) b.Needs(Capability::kAddResidual);
  const int64_t merged = hidden_size_ * merged_;
  norm_ = nn::Norm(b / names.norm, norm_of == NormOf::kPatch ? hidden_size_ : merged, norm);
  up_ = nn::Linear::Replicated(b / names.up, merged, merged, true);
  down_ = nn::Linear::Replicated(b / names.down, row_size, merged, true);
}

void PatchMerger::Forward(nn::Pass& pass, const Residual& h, Tensor rows) const {
  const ArenaScope scope(pass.arena);
  const Shape shape{rows.rows(), up_.in_features()};
  Tensor squares;
  if (norm_of_ == NormOf::kSquare) {
    squares = pass.arena.Allocate(up_.activation(), shape);
    Tensor values = pass.arena.Allocate(DType::kF32, shape);
    h.Gather(pass.logit_rows, values);
    norm_.Forward(pass, values, squares);
  } else {
    squares = NormalizeSquares(pass, h, norm_, hidden_size_, merged_, up_.activation());
  }
  Tensor inner = pass.arena.Allocate(up_.output(), shape);
  up_.Forward(pass, squares, inner);
  Tensor activated = pass.arena.Allocate(down_.activation(), shape);
  pass.ops.Run(Activate{.x = inner, .activation = Activation::kGelu, .out = activated},
               pass.stream);
  down_.Forward(pass, activated, rows);
}

}  // namespace tokamak
