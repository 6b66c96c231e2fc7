// Shared by the products that run on wgmma (skinny_gemm.cu, grouped_gemm.cu). A CTA takes tiles of
// a weight's rows and of tokens, each with all columns. Its operands arrive by TMA, a stage of
// columns at a time, in boxes of 64 columns, which are rows of 128 swizzled bytes.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ops/cuda/ptx.h"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda::wgmma_tiles {

inline constexpr int kProductRows = 64;  // of a wgmma's first operand
inline constexpr int kProductCols = 16;
inline constexpr int kBoxCols = 64;
inline constexpr int kRowBytes = 128;           // of a box: what a swizzle spans
inline constexpr int kEight = 8;                // rows of gate, and of up, in turn in a tile
inline constexpr int kSharedBytes = 110 << 10;  // so that two CTAs fit into an SM

// Multiplies a stage: 64 rows of `a` from `first_row` on, with all rows of `b`.
template <int kBoxes, int kBytesA, int kBytesB, int kSums>
__device__ void MultiplyBoxes(const uint8_t (&a)[kBoxes][kBytesA],
                              const uint8_t (&b)[kBoxes][kBytesB], int first_row, bool accumulate,
                              float (&sums)[kSums]) {
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    const uint64_t rows = ptx::DescribeTile(a[box] + first_row * kRowBytes, kRowBytes, 16, 1024);
    const uint64_t columns = ptx::DescribeTile(b[box], kRowBytes, 16, 1024);
#pragma unroll
    for (int k = 0; k < kBoxCols / kProductCols; ++k) {
      const uint64_t at = k * kProductCols * 2 / 16;  // a descriptor counts units of 16 bytes
      ptx::WarpgroupMultiplyBf16(sums, rows + at, columns + at, accumulate || box + k > 0);
    }
  }
}

// Multiplies all columns of the CTA's tile number `tile`, by a warpgroup. multiply(stage,
// accumulate) multiplies a stage of `memory`.
template <typename Memory, int kSums, typename Multiply>
__device__ void MultiplyTile(unsigned tile, unsigned steps, Memory& memory, float (&sums)[kSums],
                             const Multiply& multiply) {
  const unsigned first = tile * steps;
#pragma unroll
  for (float& sum : sums) sum = 0;
  ptx::PinRegisters(sums);
  for (unsigned fill = first; fill < first + steps; ++fill) {
    memory.ring.WaitUntilFilled(fill);
    ptx::FenceRegisters();
    multiply(memory.stages[memory.ring.Slot(fill)], fill > first);
    ptx::CommitProducts();
    // The stage before is free once its products are done; this one's may still run.
    ptx::WaitForProducts<1>();
    if (fill > first) memory.ring.ReleaseAfterProducts(fill - 1);
  }
  ptx::WaitForProducts<0>();
  ptx::PinRegisters(sums);
  memory.ring.ReleaseAfterProducts(first + steps - 1);
}

// [rows, cols] in boxes of `box_rows` rows.
inline CUresult MapMatrix(const void* data, int64_t rows, int64_t cols, int64_t stride,
                          int box_rows, CUtensorMap* map) {
  return MakeTensorMap({.data = const_cast<void*>(data),
                        .element_bytes = 2,
                        .sizes = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                        .strides = {static_cast<uint64_t>(stride) * 2},
                        .box = {kBoxCols, static_cast<uint32_t>(box_rows)},
                        .swizzle = kRowBytes},
                       map);
}

// The weights of gated MLPs, one below the other, each with `inner` rows of gate and as many of up.
// A box, of `box_rows` rows, begins at {column, 0, 0, eight}. It has eight rows of gate, then the
// same eight of up, and so on.
inline CUresult MapGateUp(const void* weights, int64_t groups, int64_t inner, int64_t cols,
                          int box_rows, CUtensorMap* map) {
  // Columns, rows of an eight, gate or up, and eights. The last eight that has an up is the last
  // group's. CUDA's manual wants each stride to be a multiple of the one before; neither the driver
  // nor TMA needs it (ThunderKittens' maps for tiles of several swizzled boxes rely on that).
  const auto row_bytes = static_cast<uint64_t>(cols) * 2;
  const auto rows = static_cast<uint64_t>(inner);
  const uint64_t eights = (2 * static_cast<uint64_t>(groups) - 1) * rows / kEight;
  return MakeTensorMap(
      {.data = const_cast<void*>(weights),
       .element_bytes = 2,
       .sizes = {static_cast<uint64_t>(cols), kEight, 2, eights},
       .strides = {row_bytes, rows * row_bytes, kEight * row_bytes},
       .box = {kBoxCols, kEight, 2, static_cast<uint32_t>(box_rows / (2 * kEight))},
       .swizzle = kRowBytes},
      map);
}

// Returns launch<rows, tokens>() for the one of kTiles that equals `tile`; cudaErrorInvalidValue if
// none does.
template <const auto& kTiles, typename Tile, typename Launch>
cudaError_t LaunchTile(const Tile& tile, const Launch& launch) {
  cudaError_t error = cudaErrorInvalidValue;
  const auto launch_if = [&]<size_t kIndex>(std::integral_constant<size_t, kIndex>) {
    constexpr auto kTile = kTiles[kIndex];
    if (tile == kTile) error = launch.template operator()<kTile.rows, kTile.tokens>();
  };
  [&]<size_t... kIndices>(std::index_sequence<kIndices...>) {
    (launch_if(std::integral_constant<size_t, kIndices>()), ...);
  }
  (std::make_index_sequence<kTiles.size()>());
  return error;
}

}  // namespace tokamak::cuda::wgmma_tiles
