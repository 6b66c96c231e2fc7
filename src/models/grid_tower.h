// What vision towers share that take images of about their own size and aspect ratio: patches form
// a grid, whose positions have a row and a column, and each square of merge x merge patches becomes
// a row for the language model.
#pragma once

#include <cstdint>
#include <vector>

#include "models/image_encoder.h"
#include "models/layer.h"
#include "nn/norm.h"
#include "nn/pass.h"

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

// For images of up to `max_rows` squares of `patches` patches each. `patch_values`, `hidden_size`:
// as in ImageEncoderSpec.
ImageEncoderSpec GridEncoderSpec(int32_t max_rows, int32_t patches, int32_t patch_values,
                                 int32_t hidden_size);

// Returns norm(h) of the squares whose first patches are pass.logit_rows, their patches side by
// side: [R, patches · size], of this type, in the pass's arena. h is f32 [T, size].
Tensor NormalizeSquares(nn::Pass& pass, const Residual& h, const nn::Norm& norm, int64_t size,
                        int32_t patches, DType type);

}  // namespace tokamak
