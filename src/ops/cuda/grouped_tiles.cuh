// The tiles of a product whose rows of x are in groups, each with a weight of its own. Only the
// device knows how long the groups are, so each CTA finds its tiles itself.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/grouped_gemm.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma_tiles.cuh"

namespace tokamak::cuda {

using wgmma_tiles::kEight;

inline constexpr int kMaxGroups = 1024;

// Rows [first, end) of x, of one group.
struct GroupedTile {
  int group, first, end;
  int row_tile;  // of the group's weight
};

// In shared memory. Tiles are numbered by group, then by tile of the weight's rows, then by tile of
// the group's tokens: those that read the same weights follow one another.
struct GroupedTiles {
  int starts[kMaxGroups + 1];  // row of x
  int ends[kMaxGroups];        // tiles of tokens in groups 0 to g

  // All threads of the CTA call it. `tokens`: of a tile.
  __device__ void Make(const int32_t* offsets, int groups, int tokens) {
    for (int g = static_cast<int>(threadIdx.x); g <= groups; g += static_cast<int>(blockDim.x)) {
      starts[g] = offsets[g];
    }
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x);
    int before = 0;
    for (int first = 0; first < groups && lane < kWarp; first += kWarp) {
      const int g = first + lane;
      int tiles = g < groups ? (starts[g + 1] - starts[g] + tokens - 1) / tokens : 0;
      for (int distance = 1; distance < kWarp; distance *= 2) {
        const int other = __shfl_up_sync(kAllLanes, tiles, distance);
        if (lane >= distance) tiles += other;
      }
      if (g < groups) ends[g] = before + tiles;
      before += __shfl_sync(kAllLanes, tiles, kWarp - 1);
    }
    __syncthreads();
  }
  __device__ unsigned Count(int groups, unsigned row_tiles) const {
    return static_cast<unsigned>(ends[groups - 1]) * row_tiles;
  }
  __device__ GroupedTile Find(unsigned tile, int groups, unsigned row_tiles, int tokens) const {
    const int wanted = static_cast<int>(tile / row_tiles);
    int group = 0;  // the first one with ends[group] > wanted
    for (int last = groups - 1; group < last;) {
      const int middle = (group + last) / 2;
      if (ends[middle] > wanted) {
        last = middle;
      } else {
        group = middle + 1;
      }
    }
    const int before = group == 0 ? 0 : ends[group - 1];
    const int token_tiles = ends[group] - before;
    const int in_group = static_cast<int>(tile - static_cast<unsigned>(before) * row_tiles);
    const int first = starts[group] + in_group % token_tiles * tokens;
    return {.group = group,
            .first = first,
            .end = min(first + tokens, starts[group + 1]),
            .row_tile = in_group / token_tiles};
  }
};

// Requests 64 columns, from `column` on, of a tile of `tile_rows` rows of its group's weight.
__device__ inline void LoadWeightRows(void* shared, const CUtensorMap* weights,
                                      const GroupedLinearArgs& a, const GroupedTile& tile,
                                      int tile_rows, int column, uint64_t* barrier) {
  if (a.gated) {
    // The group's rows and the tile's are both twice as many as those of gate.
    const int eight =
        tile.group * static_cast<int>(a.rows / kEight) + tile.row_tile * (tile_rows / (2 * kEight));
    ptx::LoadBox(shared, weights, {column, 0, 0, eight}, barrier);
  } else {
    const int row = tile.group * static_cast<int>(a.rows) + tile.row_tile * tile_rows;
    ptx::LoadBox(shared, weights, {column, row}, barrier);
  }
}

// Makes the map for LoadWeightRows.
inline CUresult MapWeightRows(const GroupedLinearArgs& a, int tile_rows, CUtensorMap* map) {
  if (!a.gated) {
    return wgmma_tiles::MapMatrix(a.weights, a.groups * a.rows, a.cols, a.cols, tile_rows, map);
  }
  return wgmma_tiles::MapGateUp(a.weights, a.groups, a.rows / 2, a.cols, tile_rows, map);
}

// What a kernel of grouped products must know beside its arguments.
struct GroupedWork {
  unsigned row_tiles;  // of a weight
  unsigned steps;      // stages of a tile
};
struct GroupedLaunch {
  int box_tokens;  // tokens that one request of TMA loads
  int stage_cols;
  int threads;
  size_t shared_bytes;
};

// Launches kernel(maps..., args, work), which takes tiles in turn, with up to `ctas` CTAs.
template <typename Kernel, typename... Maps>
cudaError_t LaunchWithMaps(Kernel kernel, const GroupedLinearArgs& args, GroupedTileShape tile,
                           const GroupedLaunch& launch, int ctas, bool dependent,
                           cudaStream_t stream, const Maps&... maps) {
  const GroupedWork work = {
      .row_tiles = static_cast<unsigned>(CeilDiv(args.rows, int64_t{tile.rows})),
      .steps = static_cast<unsigned>(CeilDiv(args.cols, int64_t{launch.stage_cols}))};
  const cudaError_t error = AllowSharedMemory(kernel, launch.shared_bytes);
  if (error != cudaSuccess) return error;
  const int64_t most =
      std::min(args.num_rows, args.num_rows / tile.tokens + args.groups) * work.row_tiles;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(most, ctas));
  return LaunchGroups({.dependent = dependent}, kernel, grid, launch.threads, launch.shared_bytes,
                      stream, maps..., args, work);
}

// The same as a dependent of the kernel ahead, with the maps of the weights and of x.
template <typename Kernel>
cudaError_t LaunchOnTiles(Kernel kernel, const GroupedLinearArgs& args, GroupedTileShape tile,
                          const GroupedLaunch& launch, int ctas, cudaStream_t stream) {
  CUtensorMap weights;
  CUtensorMap tokens;
  if (MapWeightRows(args, tile.rows, &weights) != CUDA_SUCCESS ||
      wgmma_tiles::MapMatrix(args.x, args.one_row ? 1 : args.num_rows, args.cols, args.x_stride,
                             launch.box_tokens, &tokens) != CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  return LaunchWithMaps(kernel, args, tile, launch, ctas, /*dependent=*/true, stream, weights,
                        tokens);
}

}  // namespace tokamak::cuda
