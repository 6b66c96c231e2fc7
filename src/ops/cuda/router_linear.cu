// The router's product (kernels.h): f32 inputs, weights and sums, in the same order for any number
// of tokens. Chain c of an output's 32 has columns 4 · c to 4 · c + 3 of each 128; the sums of the
// chains are added in pairs, at distance 16, 8, 4, 2, 1.
//
// Few tokens: a lane per chain. Bound by loads: the weights are small, and the warps are few.
//
// Many tokens: tiles of 64 tokens and 32 rows, in two halves, chains 0 to 15 and then 16 to 31. In
// a half a warp has 16 tokens and 16 rows, and two lanes share a chain, with 8 tokens each: 24
// loads from shared memory per 512 fused multiply-adds. All 32 chains at once would leave registers
// for tiles half as large, for which the L2 is too slow. Sums of the first half wait in shared
// memory. Bound: arithmetic. cp.async is two steps of 64 columns ahead.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/shared_bytes.h"

namespace tokamak::cuda {
namespace {

constexpr int kRouterWarps = 8;  // at most

constexpr int kPeriod = kWarp * 4;  // columns until a chain has some again

__device__ int Lane() { return static_cast<int>(threadIdx.x % kWarp); }

// Loads columns `first` to `first` + 3 of each row, and the same of the next periods.
template <bool kVectors, int kSteps, int kRows>
__device__ void LoadSteps(const float* const (&rows)[kRows], int64_t first, int64_t cols,
                          float (&to)[kSteps][kRows][4]) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t k = first + s * kPeriod;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (k < cols) LoadFour<F32, kVectors>(rows[r] + k, cols - k, to[s][r]);
    }
  }
}

// A warp has a tile of outputs. A lane adds the products of columns 4 · lane + 128 · i up to four
// further ones; then the lanes' sums are added as WarpSum does. So the tile changes no bits. A lane
// requests kSteps such groups of columns at a time, and the first of the weights before the kernel
// ahead has ended.
template <int kTokens, int kRows, int kSteps, bool kVectors>
__global__ void __launch_bounds__(kRouterWarps* kWarp)
    RouterLinearKernel(const RouterLinearArgs a) {
  const int64_t warp = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / kWarp;
  const int64_t first_row = warp * kRows, first_token = blockIdx.y * int64_t{kTokens};
  const float* x[kTokens];
  const float* w[kRows];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    x[t] = a.x + min(first_token + t, a.num_tokens - 1) * a.x_stride;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) w[r] = a.weight + min(first_row + r, a.rows - 1) * a.cols;
  float factors[kSteps][kRows][4];
  ptx::LaunchDependents();
  LoadSteps<kVectors>(w, Lane() * 4, a.cols, factors);
  ptx::WaitForKernelAhead();
  if (first_row >= a.rows) return;
  float sums[kTokens][kRows] = {};
  for (int64_t first = Lane() * 4; first < a.cols; first += kSteps * kPeriod) {
    if (first >= kSteps * kPeriod) LoadSteps<kVectors>(w, first, a.cols, factors);
    float values[kSteps][kTokens][4];
    LoadSteps<kVectors>(x, first, a.cols, values);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s * kPeriod >= a.cols) break;
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            sums[t][r] = fmaf(values[s][t][c], factors[s][r][c], sums[t][r]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t token = first_token + t, row = first_row + r;
      float sum = WarpSum(sums[t][r]);
      if (Lane() != 0 || token >= a.num_tokens || row >= a.rows) continue;
      if (a.bias != nullptr) sum = __fadd_rn(sum, a.bias[row]);
      a.out[token * a.out_stride + row] = sum;
    }
  }
}

template <int kTokens, int kRows, int kSteps>
cudaError_t LaunchLanes(const RouterLinearArgs& args, int warps, bool vectors,
                        cudaStream_t stream) {
  const dim3 grid(Grid(args.rows, warps * kRows), Grid(args.num_tokens, kTokens));
  const auto kernel = vectors ? &RouterLinearKernel<kTokens, kRows, kSteps, true>
                              : &RouterLinearKernel<kTokens, kRows, kSteps, false>;
  return LaunchDependent(kernel, grid, static_cast<unsigned>(warps) * kWarp, stream, args);
}

namespace tiled {

constexpr int kThreads = 256;
constexpr int kChains = kWarp / 2;  // at a time
constexpr int kStepCols = kChains * 4;
constexpr int kPieces = kChains;  // of 16 bytes, in a row of a step: one for each chain
constexpr int kWarpTokens = 16;
constexpr int kWarpRows = kChains;  // at last each chain's lanes have one row
constexpr int kTokens = 4 * kWarpTokens;
constexpr int kRows = 2 * kWarpRows;
constexpr int kLaneTokens = kWarpTokens / 2;
constexpr int kStages = 3;

struct Stage {
  float4 x[kTokens][kPieces];  // pieces of odd tokens in the other half of 128 bytes (Swizzled)
  float4 weight[kRows][kPieces];
};
struct Memory {
  Stage stages[kStages];
  float4 first_half[kWarpRows * kLaneTokens / 4][kThreads];
};

// The two lanes of a chain read neighbouring tokens. This keeps them, and the lanes of the next
// three chains, in different banks.
__device__ int Swizzled(int token, int piece) { return piece ^ (token % 2 * 4); }

using Sums = float[kWarpRows][kLaneTokens];

// Requests one step after another of the CTA's tokens and rows. Columns beyond the last one become
// zeros; tokens and rows beyond the last are copies of it. Its pointers move, because the compiler
// would compute them anew in each step if they did not.
class Copier {
 public:
  __device__ explicit Copier(const RouterLinearArgs& a)
      : place_(static_cast<int>(threadIdx.x) / kPieces),
        piece_(static_cast<int>(threadIdx.x) % kPieces),
        cols_(static_cast<int>(a.cols)),
        column_(piece_ * 4) {
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      const int64_t token = int64_t{blockIdx.y} * kTokens + i * kPlaces + place_;
      x_[i] = a.x + min(token, a.num_tokens - 1) * a.x_stride + column_;
    }
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) {
      const int64_t row = int64_t{blockIdx.x} * kRows + i * kPlaces + place_;
      weight_[i] = a.weight + min(row, a.rows - 1) * a.cols + column_;
    }
  }

  __device__ void Load(Stage& stage) {
    const int valid = column_ < cols_ ? 16 : 0;
    // kPlaces is even, so all of the thread's tokens are odd or none is.
    float4* const x = &stage.x[place_][Swizzled(place_, piece_)];
    float4* const weight = &stage.weight[place_][piece_];
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      ptx::CopyAsync16(x + i * kPlaces * kPieces, x_[i], valid);
    }
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) {
      ptx::CopyAsync16(weight + i * kPlaces * kPieces, weight_[i], valid);
    }
  }
  __device__ void Move(int columns) {
    column_ += columns;
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) x_[i] += columns;
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) weight_[i] += columns;
  }

 private:
  static constexpr int kPlaces = kThreads / kPieces;  // tokens or rows that are copied at a time
  static constexpr int kTokenCopies = kTokens / kPlaces;
  static constexpr int kRowCopies = kRows / kPlaces;

  const int place_, piece_, cols_;
  int column_;
  const float* x_[kTokenCopies];
  const float* weight_[kRowCopies];
};

__device__ void MultiplyStep(const Stage& stage, int first_token, int first_row, int chain,
                             Sums& sums) {
  float values[kLaneTokens][4];
#pragma unroll
  for (int t = 0; t < kLaneTokens; ++t) {
    const int m = first_token + 2 * t;
    const float4 x = stage.x[m][Swizzled(m, chain)];
    values[t][0] = x.x, values[t][1] = x.y, values[t][2] = x.z, values[t][3] = x.w;
  }
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const float4 w = stage.weight[first_row + r][chain];
    const float factors[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
#pragma unroll
      for (int t = 0; t < kLaneTokens; ++t) {
        sums[r][t] = fmaf(values[t][c], factors[c], sums[r][t]);
      }
    }
  }
}

// Keeps the sums of the first half of the chains for AddFirstHalf, and begins anew.
__device__ void KeepFirstHalf(Memory& memory, Sums& sums) {
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
#pragma unroll
    for (int t = 0; t < kLaneTokens; t += 4) {
      const float4 four = {sums[r][t], sums[r][t + 1], sums[r][t + 2], sums[r][t + 3]};
      memory.first_half[(r * kLaneTokens + t) / 4][threadIdx.x] = four;
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[r][t + i] = 0;
    }
  }
}
__device__ void AddFirstHalf(const Memory& memory, Sums& sums) {
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
#pragma unroll
    for (int t = 0; t < kLaneTokens; t += 4) {
      const float4 kept = memory.first_half[(r * kLaneTokens + t) / 4][threadIdx.x];
      sums[r][t] += kept.x;
      sums[r][t + 1] += kept.y;
      sums[r][t + 2] += kept.z;
      sums[r][t + 3] += kept.w;
    }
  }
}

// Adds the chains' sums, so that those of row `chain` are in sums[0]. Of lanes whose chains differ
// in one bit, each passes on half of its rows.
__device__ void AddChains(int chain, Sums& sums) {
#pragma unroll
  for (int bit = 3; bit >= 0; --bit) {
    const int distance = 1 << bit;
    const bool upper = (chain & distance) != 0;
#pragma unroll
    for (int r = 0; r < distance; ++r) {
#pragma unroll
      for (int t = 0; t < kLaneTokens; ++t) {
        const float mine = upper ? sums[r + distance][t] : sums[r][t];
        const float passed = upper ? sums[r][t] : sums[r + distance][t];
        sums[r][t] = mine + __shfl_xor_sync(kAllLanes, passed, 2 * distance);
      }
    }
  }
}

// CTAs (n, m) have a tile of rows and of tokens: those of the same tokens run at the same time.
__global__ void __launch_bounds__(kThreads, 1) TiledRouterKernel(const RouterLinearArgs a) {
  DYNAMIC_SHARED(shared, SwizzleAligned);
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  const int warp = static_cast<int>(threadIdx.x / kWarp), chain = Lane() / 2;
  const int first_token = warp / 2 * kWarpTokens + Lane() % 2;  // of the tile; then every second
  const int first_row = warp % 2 * kWarpRows;
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  Copier copier(a);
  const int cols = static_cast<int>(a.cols), periods = CeilDiv(cols, kPeriod);
  const auto load = [&](int step, int slot) {
    if (step < 2 * periods) copier.Load(memory.stages[slot]);
    ptx::CommitCopies();
    copier.Move(step + 1 == periods ? kStepCols - (periods - 1) * kPeriod : kPeriod);
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step, step);
  Sums sums = {};
  int column = chain * 4, slot = 0, free_slot = kStages - 1;
  for (int step = 0; step < 2 * periods; ++step) {
    if (step == periods) {
      KeepFirstHalf(memory, sums);
      column = kStepCols + chain * 4;
    }
    ptx::WaitForCopies<kStages - 2>();
    __syncthreads();  // all have the step's columns, and have used those of the step before
    load(step + kStages - 1, free_slot);
    if (column < cols) MultiplyStep(memory.stages[slot], first_token, first_row, chain, sums);
    column += kPeriod;
    free_slot = slot;
    if (++slot == kStages) slot = 0;
  }
  AddFirstHalf(memory, sums);
  AddChains(chain, sums);
  const int64_t row = int64_t{blockIdx.x} * kRows + first_row + chain;
  if (row >= a.rows) return;
  const float bias = a.bias != nullptr ? a.bias[row] : 0;
#pragma unroll
  for (int t = 0; t < kLaneTokens; ++t) {
    const int64_t token = int64_t{blockIdx.y} * kTokens + first_token + 2 * t;
    if (token >= a.num_tokens) return;
    const float sum = a.bias != nullptr ? __fadd_rn(sums[0][t], bias) : sums[0][t];
    a.out[token * a.out_stride + row] = sum;
  }
}

}  // namespace tiled

bool HasVectors(const RouterLinearArgs& args) {
  return args.cols % 4 == 0 && FitsFours(args.x, args.x_stride, sizeof(float)) &&
         FitsFours(args.weight, args.cols, sizeof(float));
}

}  // namespace

bool HasRouterTiles(const RouterLinearArgs& args) {
  return HasVectors(args) && static_cast<size_t>(MaxSharedBytes()) >= sizeof(tiled::Memory);
}

cudaError_t LaunchRouterTiles(const RouterLinearArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  constexpr size_t kBytes = sizeof(tiled::Memory);
  const cudaError_t allowed = AllowSharedMemory(&tiled::TiledRouterKernel, kBytes);
  if (allowed != cudaSuccess) return allowed;
  const dim3 grid(Grid(args.rows, tiled::kRows), Grid(args.num_tokens, tiled::kTokens));
  return LaunchGroups({.dependent = HasDependents()}, &tiled::TiledRouterKernel, grid,
                      tiled::kThreads, kBytes, stream, args);
}

cudaError_t LaunchRouterLanes(const RouterLinearArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  const bool vectors = HasVectors(args);
  // With few tokens, larger tiles or CTAs would leave SMs idle.
  if (args.num_tokens <= 4) return LaunchLanes<1, 1, 16>(args, 1, vectors, stream);
  if (args.num_tokens <= 64) return LaunchLanes<4, 2, 4>(args, 1, vectors, stream);
  return LaunchLanes<4, 4, 2>(args, kRouterWarps, vectors, stream);
}

cudaError_t LaunchRouterLinear(const RouterLinearArgs& args, cudaStream_t stream) {
  // Fewer tokens do not give every SM a tile.
  constexpr int64_t kManyTokens = 1024;
  const bool tiles = args.num_tokens >= kManyTokens && HasRouterTiles(args);
  return tiles ? LaunchRouterTiles(args, stream) : LaunchRouterLanes(args, stream);
}

}  // namespace tokamak::cuda
