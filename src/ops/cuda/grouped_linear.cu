// The plain kernel for GroupedLinear (ops/moe.h): any shape and alignment, in f32 or bf16.
//
// out[r, n] = Σ_k x[r, k] · w[e, n, k] + bias[e, n] for the rows r of group e. Each output is one
// chain of fused multiply-adds over ascending k; then the bias is added, and the sum is rounded to
// the type of `out`. Tiles and threads as in linear.cu; a CTA whose number is beyond the last tile
// ends at once.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/grouped_tiles.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kThreads = 256;
constexpr int kOutputs = kTile * kTile / kThreads;  // of a thread

// Rows [0, rows) and columns [k, k + kTile) of a matrix, zero outside of it.
template <typename Element>
__device__ void LoadTile(const typename Element::Storage* matrix, int rows, int64_t cols,
                         int64_t stride, int64_t k, float tile[kTile][kTile + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int row = i / kTile;
    const int64_t col = k + i % kTile;
    tile[row][i % kTile] = row < rows && col < cols ? Element::Load(matrix[row * stride + col]) : 0;
  }
}

template <typename Element, typename Out>
__global__ void __launch_bounds__(kThreads, 4) PlainGroupedKernel(const GroupedLinearArgs a) {
  using Storage = typename Element::Storage;
  SHARED(tiles, GroupedTiles);
  SHARED(x, float[kTile][kTile + 1]);
  SHARED(w, float[kTile][kTile + 1]);
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  tiles.Make(a.offsets, a.groups, kTile);
  const auto row_tiles = static_cast<unsigned>((a.rows + kTile - 1) / kTile);
  if (blockIdx.x >= tiles.Count(a.groups, row_tiles)) return;
  const GroupedTile tile = tiles.Find(blockIdx.x, a.groups, row_tiles, kTile);
  const int64_t first_row = int64_t{tile.row_tile} * kTile;
  const int left = static_cast<int>(min(a.rows - first_row, int64_t{kTile}));
  const Storage* const tokens = static_cast<const Storage*>(a.x) + tile.first * a.x_stride;
  const Storage* const weights =
      static_cast<const Storage*>(a.weights) + (tile.group * a.rows + first_row) * a.cols;
  const int column = static_cast<int>(threadIdx.x % kTile);
  const int line = static_cast<int>(threadIdx.x / kTile);
  float sums[kOutputs] = {};
  for (int64_t k = 0; k < a.cols; k += kTile) {
    LoadTile<Element>(tokens, tile.end - tile.first, a.cols, a.x_stride, k, x);
    LoadTile<Element>(weights, left, a.cols, a.cols, k, w);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) {
#pragma unroll
      for (int j = 0; j < kOutputs; ++j) {
        sums[j] = fmaf(x[line + j * (kTile / kOutputs)][i], w[column][i], sums[j]);
      }
    }
    __syncthreads();
  }
  if (column >= left) return;
  const int64_t n = first_row + column;
  auto* const out = static_cast<typename Out::Storage*>(a.out);
#pragma unroll
  for (int j = 0; j < kOutputs; ++j) {
    const int64_t r = tile.first + line + j * (kTile / kOutputs);
    if (r >= tile.end) continue;
    if (a.bias != nullptr) sums[j] = __fadd_rn(sums[j], a.bias[tile.group * a.rows + n]);
    out[r * a.out_stride + n] = Out::Store(sums[j]);
  }
}

}  // namespace

cudaError_t LaunchPlainGroupedLinear(const GroupedLinearArgs& args, cudaStream_t stream) {
  if (args.num_rows * args.rows == 0) return cudaSuccess;
  if (args.groups > kMaxGroups) return cudaErrorInvalidValue;
  const int64_t most = std::min(args.num_rows, args.num_rows / kTile + args.groups);
  const auto kernel = !args.bf16      ? &PlainGroupedKernel<F32, F32>
                      : args.out_bf16 ? &PlainGroupedKernel<BF16, BF16>
                                      : &PlainGroupedKernel<BF16, F32>;
  return LaunchDependent(kernel, Grid(most * CeilDiv(args.rows, int64_t{kTile}), 1), kThreads,
                         stream, args);
}

}  // namespace tokamak::cuda
