#include "models/position_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tokamak {
namespace {

constexpr int kMostTaps = 4;

// The rows around a point of one side of a table, and their weights.
struct Taps {
  std::array<int32_t, kMostTaps> at = {};
  std::array<double, kMostTaps> weights = {};
};

// Weight of a row at this distance.
double Bicubic(double distance) {
  constexpr double a = -0.75;
  const double d = distance;
  return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

// Computes in single precision like the reference, which decides where both grids have a border.
int32_t Nearest(int32_t i, int32_t count, int32_t side) {
  const float place = static_cast<float>(i) / static_cast<float>(count);
  const double step = 1.0 / side;
  int32_t row = 0;
  while (row + 1 < side && static_cast<float>(step + row * step) <= place) ++row;
  return row;
}

// Returns the taps of patch i of the `count` on a side of the image's grid.
Taps TapsOf(int32_t i, int32_t count, int32_t side, Interpolation kind) {
  if (kind == Interpolation::kNearest) return {.at = {Nearest(i, count, side)}, .weights = {1}};
  const bool bilinear = kind == Interpolation::kBilinear;
  const double place = bilinear ? static_cast<double>(i) * (side - 1) / std::max(count - 1, 1)
                                : (i + 0.5) * side / count - 0.5;
  const double below = std::floor(place);
  const int before = bilinear ? 0 : 1;
  Taps taps;
  for (int k = 0; k < static_cast<int>(kind); ++k) {
    const double row = below + k - before, distance = std::abs(place - row);
    taps.at[k] = std::clamp(static_cast<int32_t>(row), 0, side - 1);  // beyond the edge: as on it
    taps.weights[k] = bilinear ? 1 - distance : Bicubic(distance);
  }
  return taps;
}

}  // namespace

PositionTable::PositionTable(const nn::Builder& b, int32_t side, int64_t hidden_size,
                             Interpolation kind)
    : side_(side), kind_(kind) {
  b.Needs(Capability::kCombine);
  const Shape shape{int64_t{side} * side, hidden_size};
  const nn::SourcePtr stored =
      (b / "weight").Find(shape, fmt::format("{} x {} positions", side, side));
  const std::vector<float> values = b.ReadValues({stored});
  if (b.ok()) table_ = b.Store(values, shape);
}

void PositionTable::Append(int32_t row, int32_t column, int32_t grid_height, int32_t grid_width,
                           ImageLayout& layout) const {
  const Taps rows = TapsOf(row, grid_height, side_, kind_);
  const Taps columns = TapsOf(column, grid_width, side_, kind_);
  for (int y = 0; y < per_side(); ++y) {
    for (int x = 0; x < per_side(); ++x) {
      layout.position_rows.push_back(rows.at[y] * side_ + columns.at[x]);
      layout.position_weights.push_back(static_cast<float>(rows.weights[y] * columns.weights[x]));
    }
  }
}

void PositionTable::Add(nn::Pass& pass, Tensor x, Tensor out) const {
  pass.ops.Run(CombineExperts{.x = table_.tensor,
                              .rows = pass.position_rows,
                              .weights = pass.position_weights,
                              .shared = x,
                              .shared_gate = {},
                              .out = out},
               pass.stream);
}

}  // namespace tokamak
