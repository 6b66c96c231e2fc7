// Products of groups of rows with a stack of weights in bf16 (GroupedLinear in ops/moe.h), on
// tensor cores. Each output has the recipe of skinny_gemm.h, so a row's bits do not depend on
// its group's other rows or on the tile.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernel_form.h"
#include "ops/cuda/kernels.h"

namespace tokamak::cuda {

// Rows of a weight and tokens that a CTA multiplies at a time. The choice changes speed alone.
struct GroupedTileShape {
  int rows = 0;
  int tokens = 0;
  bool operator==(const GroupedTileShape&) const = default;
};

// All tiles that exist. The last one has a kernel of its own, for Hopper (wide_grouped_gemm.cu).
inline constexpr std::array<GroupedTileShape, 6> kGroupedTiles = {
    {{64, 8}, {64, 16}, {64, 32}, {64, 64}, {128, 128}, {256, 192}}};
inline constexpr GroupedTileShape kWideGroupedTile = kGroupedTiles.back();

// The tile for so many rows in so many groups. Groups are unequal, so a tile has room for twice the
// average, as far as tiles go: the last one, if it `can_be_wide`, or the one before.
constexpr GroupedTileShape ChooseGroupedTile(int64_t num_rows, int64_t groups, bool can_be_wide) {
  const size_t last = kGroupedTiles.size() - (can_be_wide ? 1 : 2);
  for (size_t i = 0; i < last; ++i) {
    if (2 * num_rows <= kGroupedTiles[i].tokens * groups) return kGroupedTiles[i];
  }
  return kGroupedTiles[last];
}

// How many CTAs with this tile fit into an SM.
constexpr int GroupedCtasPerSm(const GroupedTileShape& tile) {
  return tile == kWideGroupedTile ? 1 : 2;
}

// Whether rows of x and of the weights begin at multiples of 16 bytes, as this kernel needs, and
// with `gated`, whether gate has a multiple of eight rows.
bool FitsGroupedGemm(const GroupedLinearArgs& args);
// Whether also a weight has a multiple of eight rows, and four neighbours of out are aligned as
// one, which kWideGroupedTile needs.
bool FitsWideGroupedGemm(const GroupedLinearArgs& args);

// Launches up to `ctas` CTAs, as a dependent of the kernel ahead. cudaErrorInvalidValue unless
// `tile` is one of kGroupedTiles, the arguments fit, there are at most 1024 groups, and the build
// has the tile in this form.
cudaError_t LaunchGroupedGemm(const GroupedLinearArgs& args, GroupedTileShape tile, int ctas,
                              KernelForm form, cudaStream_t stream);
// The same with kWideGroupedTile.
cudaError_t LaunchWideGroupedGemm(const GroupedLinearArgs& args, int ctas, cudaStream_t stream);

}  // namespace tokamak::cuda
