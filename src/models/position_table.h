// Learned positions of a square grid of patches, for images whose grids have other sizes: each
// patch gets the table's value at its place, interpolated between the rows around it.
#pragma once

#include <cstdint>

#include "models/image_encoder.h"
#include "nn/builder.h"
#include "nn/pass.h"
#include "tensor/tensor.h"

namespace tokamak {

// The value is the number of rows around a point, per side.
enum class Interpolation {
  kNearest = 1,   // the patches of both grids cover the same area, and a patch's first point counts
  kBilinear = 2,  // the corners of the grids coincide (align_corners in PyTorch)
  kBicubic = 4,   // Keys' kernel, a = -0.75 (doi:10.1109/TASSP.1981.1163711); the patches of both
                  // grids cover the same area
};

// Immutable after loading.
class PositionTable {
 public:
  PositionTable() = default;
  // Reads b.weight: f32 [side · side, hidden_size], row by row.
  PositionTable(const nn::Builder& b, int32_t side, int64_t hidden_size, Interpolation kind);

  // ImageEncoderSpec::position_taps; 0 if the table is empty.
  int32_t num_taps() const { return side_ == 0 ? 0 : per_side() * per_side(); }
  // Appends the rows and weights of the patch in this row and column of an image's grid.
  void Append(int32_t row, int32_t column, int32_t grid_height, int32_t grid_width,
              ImageLayout& layout) const;
  // out = x + the positions of the pass's tokens. x: an inner type, out: f32; both [T,
  // hidden_size].
  void Add(nn::Pass& pass, Tensor x, Tensor out) const;

 private:
  int32_t per_side() const { return static_cast<int32_t>(kind_); }

  int32_t side_ = 0;
  Interpolation kind_ = Interpolation::kBilinear;
  nn::OwnedTensor table_;
};

}  // namespace tokamak
