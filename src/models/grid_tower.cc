#include "models/grid_tower.h"

#include <algorithm>
#include <numeric>

namespace tokamak {

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
                                 int32_t hidden_size) {
  constexpr int32_t kFew = 16;  // rows of a small image
  return {.patch_size = patch_values,
          .hidden_size = hidden_size,
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
  // The rows behind the last patch are never part of a result.
  Tensor x = pass.arena.Allocate(type, {pass.num_tokens() + patches - 1, size});
  h.Normalize(norm, x.Rows(0, pass.num_tokens()));
  Tensor beside(x.data, type, {pass.num_tokens(), patches * size});
  beside.row_stride = x.row_stride;  // row t is tokens t, t + 1, ..., side by side
  pass.ops.Run(GatherRows{.source = beside, .rows = pass.logit_rows, .out = squares}, pass.stream);
  return squares;
}

}  // namespace tokamak
