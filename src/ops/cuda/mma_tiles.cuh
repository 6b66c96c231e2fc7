// Shared by the products for GPUs without TMA and wgmma (skinny_gemm.cu, grouped_gemm.cu). Tiles,
// boxes and the sums of a thread are those of wgmma_tiles.cuh. A warp copies the boxes by cp.async
// to where TMA would put them. The others multiply by mma.sync, 16 rows of a box each.
#pragma once

#include <cstdint>

#include "ops/cuda/device.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/wgmma_tiles.cuh"

namespace tokamak::cuda::mma_tiles {

using wgmma_tiles::kBoxCols;
using wgmma_tiles::kProductCols;
using wgmma_tiles::kRowBytes;

inline constexpr int kProductRows = 16;  // of a warp, in the first operand
// So that two CTAs fit into an SM of compute capability 8.6, 8.9 or 12.0, which has 100 KB. Each
// CTA takes 1 KB more.
inline constexpr int kSharedBytes = 49 << 10;

inline constexpr int kChunkBytes = 16;  // that a swizzle moves as one
inline constexpr int kRowChunks = kRowBytes / kChunkBytes;

// Whether CopyBox can copy from a bf16 matrix of so many elements from row to row.
inline bool FitsChunks(const void* matrix, int64_t stride) {
  return reinterpret_cast<uintptr_t>(matrix) % kChunkBytes == 0 && stride % (kChunkBytes / 2) == 0;
}

// Copies kRows rows of 64 columns, from `column` on, of a matrix with `cols` columns: by a warp, to
// a box that TMA would have swizzled. row_of(i) is the place in the matrix of the box's row i;
// negative: zeros, as columns beyond the matrix are.
template <int kRows, typename RowOf>
__device__ void CopyBox(uint8_t* box, const uint16_t* matrix, int cols, int stride, int column,
                        const RowOf& row_of) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int chunk = lane % kRowChunks;
  column += chunk * (kChunkBytes / 2);
  constexpr int kCopied = kWarp / kRowChunks;  // rows at a time
  static_assert(kRows % kCopied == 0);
#pragma unroll 4
  for (int first = 0; first < kRows; first += kCopied) {
    const int i = first + lane / kRowChunks;
    const int row = row_of(i);
    const bool is_inside = row >= 0 && column < cols;
    ptx::CopyAsync16(box + i * kRowBytes + (chunk ^ i % 8) * kChunkBytes,
                     is_inside ? matrix + int64_t{row} * stride + column : matrix,
                     is_inside ? kChunkBytes : 0);
  }
}

// Multiplies a stage, by a warp: 16 rows of `a` from `first_row` on, with all rows of `b`. If a box
// of `a` has fewer rows, what lies behind it is read, and nobody may use the sums of these rows.
template <int kBoxes, int kBytesA, int kBytesB, int kSums>
__device__ void MultiplyBoxes(const uint8_t (&a)[kBoxes][kBytesA],
                              const uint8_t (&b)[kBoxes][kBytesB], int first_row,
                              float (&sums)[kSums]) {
  constexpr int kTiles = kSums / 4;  // of eight rows of b
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int row = lane % 8, matrix = lane / 8;  // of an ldmatrix
  const auto place = [&](int eight, int chunk) {
    return (eight * 8 + row) * kRowBytes + (chunk ^ row) * kChunkBytes;
  };
  const auto* const a_begin = reinterpret_cast<const uint8_t*>(&a);
  const int a_place = first_row * kRowBytes + place(matrix % 2, matrix / 2);
  // An ldmatrix has two tiles of b; of a single tile, it has the columns of two products.
  const int b_place = kTiles == 1 ? place(0, matrix) : place(matrix / 2, matrix % 2);
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    uint32_t b_fragments[4];
#pragma unroll
    for (int k = 0; k < kBoxCols / kProductCols; ++k) {
      // The columns of a product are two chunks, so they change other bits than a matrix's chunk.
      const int columns = k * 2 * kChunkBytes;
      uint32_t a_fragments[4];
      ptx::LoadMatrices(a_fragments, a_begin + box * kBytesA + (a_place ^ columns));
      const auto multiply = [&](int tile, int half) {
        ptx::MultiplyBf16(*reinterpret_cast<float(*)[4]>(&sums[4 * tile]), a_fragments,
                          {b_fragments[2 * half], b_fragments[2 * half + 1]});
      };
      if constexpr (kTiles == 1) {
        if (k % 2 == 0) ptx::LoadMatrices(b_fragments, b[box] + (b_place ^ columns));
        multiply(0, k % 2);
      } else {
#pragma unroll
        for (int tile = 0; tile < kTiles; tile += 2) {
          ptx::LoadMatrices(b_fragments, b[box] + (b_place ^ columns) + tile * 8 * kRowBytes);
          multiply(tile, 0);
          multiply(tile + 1, 1);
        }
      }
    }
  }
}

// Multiplies all columns of the CTA's tile number `tile`, by each warp. multiply(stage) multiplies
// a stage of `memory`.
template <typename Memory, int kSums, typename Multiply>
__device__ void MultiplyTile(unsigned tile, unsigned steps, Memory& memory, float (&sums)[kSums],
                             const Multiply& multiply) {
#pragma unroll
  for (float& sum : sums) sum = 0;
  for (unsigned fill = tile * steps; fill < (tile + 1) * steps; ++fill) {
    memory.ring.WaitUntilFilled(fill);
    multiply(memory.stages[memory.ring.Slot(fill)]);
    memory.ring.ReleaseToThreads(fill);
  }
}

}  // namespace tokamak::cuda::mma_tiles
