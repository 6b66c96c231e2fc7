// The plain kernel for GroupedLinear (ops/moe.h): any shape and alignment, in f32 or bf16.
//
// out[r, n] = Σ_k x[r, k] · w[e, n, k] + bias[e, n] for the rows r of group e. A CTA makes a tile
// (plain_tile.cuh); then the bias is added, and the sum is rounded to the type of `out`. A CTA
// whose number is beyond the last tile ends at once.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/grouped_tiles.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/plain_tile.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

template <typename Element, typename Out>
__global__ void __launch_bounds__(plain::kThreads, 4)
    PlainGroupedKernel(const GroupedLinearArgs a) {
  using Storage = typename Element::Storage;
  SHARED(tiles, GroupedTiles);
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  tiles.Make(a.offsets, a.groups, plain::kTile);
  const auto row_tiles = static_cast<unsigned>((a.rows + plain::kTile - 1) / plain::kTile);
  if (blockIdx.x >= tiles.Count(a.groups, row_tiles)) return;
  const GroupedTile tile = tiles.Find(blockIdx.x, a.groups, row_tiles, plain::kTile);
  const int64_t first_row = int64_t{tile.row_tile} * plain::kTile;
  const Storage* const tokens = static_cast<const Storage*>(a.x) + tile.first * a.x_stride;
  const Storage* const weights =
      static_cast<const Storage*>(a.weights) + (tile.group * a.rows + first_row) * a.cols;
  float sums[plain::kOutputs];
  plain::Multiply<Element, Element>(
      [&](int i) { return tokens + i * a.x_stride; }, tile.end - tile.first,
      [&](int i) { return weights + i * a.cols; }, a.rows - first_row, a.cols, sums);
  const int64_t n = first_row + plain::Column();
  if (n >= a.rows) return;
  auto* const out = static_cast<typename Out::Storage*>(a.out);
#pragma unroll
  for (int j = 0; j < plain::kOutputs; ++j) {
    const int64_t r = tile.first + plain::Token(j);
    if (r >= tile.end) continue;
    if (a.bias != nullptr) sums[j] = __fadd_rn(sums[j], a.bias[tile.group * a.rows + n]);
    out[r * a.out_stride + n] = Out::Store(sums[j]);
  }
}

}  // namespace

cudaError_t LaunchPlainGroupedLinear(const GroupedLinearArgs& args, cudaStream_t stream) {
  if (args.num_rows * args.rows == 0) return cudaSuccess;
  if (args.groups > kMaxGroups) return cudaErrorInvalidValue;
  const int64_t most = std::min(args.num_rows, args.num_rows / plain::kTile + args.groups);
  const auto kernel = !args.bf16      ? &PlainGroupedKernel<F32, F32>
                      : args.out_bf16 ? &PlainGroupedKernel<BF16, BF16>
                                      : &PlainGroupedKernel<BF16, F32>;
  return LaunchDependent(kernel, Grid(most * CeilDiv(args.rows, int64_t{plain::kTile}), 1),
                         plain::kThreads, stream, args);
}

}  // namespace tokamak::cuda
