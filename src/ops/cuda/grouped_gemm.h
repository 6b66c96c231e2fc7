// Products of groups of rows with a stack of weights in bf16 (GroupedLinear in ops/moe.h), by
// wgmma: for Hopper. Each output has the recipe of skinny_gemm.h, so a row's bits do not depend on
// its group's other rows or on the tile.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "ops/cuda/kernels.h"

namespace tokamak::cuda {

// Rows of a weight and tokens that a CTA multiplies at a time. The choice changes speed alone.
struct GroupedTileShape {
  int rows = 0;
  int tokens = 0;
  bool operator==(const GroupedTileShape&) const = default;
};

// All tiles that exist.
inline constexpr std::array<GroupedTileShape, 5> kGroupedTiles = {
    {{64, 8}, {64, 16}, {64, 32}, {64, 64}, {128, 128}}};

// The tile for so many rows in so many groups. Groups are unequal, so a tile has room for twice the
// average, up to where the products take longer than reading the weights again from the L2.
constexpr GroupedTileShape ChooseGroupedTile(int64_t num_rows, int64_t groups) {
  for (const GroupedTileShape& tile : kGroupedTiles) {
    if (2 * num_rows <= tile.tokens * groups) return tile;
  }
  return kGroupedTiles.back();
}

// Whether rows of x and of the weights begin at multiples of 16 bytes, as this kernel needs, and
// with `gated`, whether gate has a multiple of eight rows.
bool FitsGroupedGemm(const GroupedLinearArgs& args);

// Launches up to `ctas` CTAs, as a dependent of the kernel ahead. cudaErrorInvalidValue unless
// `tile` is one of kGroupedTiles, the arguments fit, and there are at most 1024 groups.
cudaError_t LaunchGroupedGemm(const GroupedLinearArgs& args, GroupedTileShape tile, int ctas,
                              cudaStream_t stream);

}  // namespace tokamak::cuda
