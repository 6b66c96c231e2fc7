// Products of groups of rows with a stack of weights (grouped_gemm.h). Bound: with few rows per
// group, the bytes of the weights whose groups have rows; with many, the products.
//
// A CTA takes tiles of 64 or 128 rows of a weight and some tokens of its group, each with all
// columns. One warp requests stages of columns by TMA: both operands in boxes of 64 columns, which
// are rows of 128 swizzled bytes. One tensor map has all weights, one below the other, and one all
// rows of x. So boxes at a weight's or a group's end hold rows of the next one; their sums are
// never written, and rows do not mix. One or two warpgroups multiply 64 rows of the weight each,
// with the tokens as wgmma's N.
//
// If gate and up are to be combined, a tile has eight rows of gate, then the same eight of up, and
// so on. The tensor map collects them from where GroupedLinear finds them too, so nothing is packed
// anew, and a thread has both sums of an output.
//
// Shared memory is at most 110 KB, so that two CTAs fit into an SM: one writes its outputs while
// the other multiplies.
//
// GPUs without TMA and wgmma run the other form of the kernel, in which the 32 lanes of a warp copy
// the boxes by cp.async, and a warp multiplies 16 rows of the weight by mma.sync.
#include "ops/cuda/grouped_gemm.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/activation.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/grouped_tiles.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma_tiles.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/wgmma_tiles.cuh"

namespace tokamak::cuda {
namespace {

using wgmma_tiles::kBoxCols;
using wgmma_tiles::kProductRows;
using wgmma_tiles::kRowBytes;

template <int kRows, int kTokens, KernelForm kForm>
struct Shape {
  static constexpr bool kIsHopper = kForm == KernelForm::kHopper;
  static constexpr int kTileRows = kRows, kTileTokens = kTokens;
  static constexpr int kConsumers = 2 * kRows;  // threads: a warpgroup for each 64 rows
  static constexpr int kThreads = kConsumers + kWarp;
  static constexpr int kSums = kTokens / 2;                          // of a thread
  static constexpr int kBoxes = kIsHopper && kTokens <= 32 ? 2 : 1;  // of each operand in a stage
  static constexpr int kStageCols = kBoxes * kBoxCols;

  struct Stage {
    uint8_t weights[kBoxes][kRows * kRowBytes];
    uint8_t tokens[kBoxes][kTokens * kRowBytes];
  };
  // Without wgmma, two CTAs of the largest tile fit into an SM of an A100, one into others.
  static constexpr int kSharedBytes = kIsHopper      ? wgmma_tiles::kSharedBytes
                                      : kTokens > 64 ? 78 << 10
                                                     : mma_tiles::kSharedBytes;
  static constexpr int kStages =
      (kSharedBytes - static_cast<int>(sizeof(GroupedTiles) + 2 * sizeof(SwizzleAligned))) /
      static_cast<int>(sizeof(Stage));
  // A warpgroup releases a slot only when the products of the next one are under way.
  static_assert(kStages >= (kIsHopper ? 3 : 2));

  struct alignas(SwizzleAligned) Memory {
    Stage stages[kStages];
    RingBarriers<kStages> ring;
    GroupedTiles tiles;
  };
  static_assert(sizeof(Memory) <= kSharedBytes);
};

// Requests the stages of all of the CTA's tiles by TMA, by one thread.
template <int kRows, int kTokens>
__device__ void LoadTiles(const CUtensorMap* weights, const CUtensorMap* tokens,
                          const GroupedLinearArgs& a, const GroupedWork& work,
                          typename Shape<kRows, kTokens, KernelForm::kHopper>::Memory& memory) {
  using S = Shape<kRows, kTokens, KernelForm::kHopper>;
  const unsigned tiles = memory.tiles.Count(a.groups, work.row_tiles);
  unsigned fill = 0;
  for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) {
    const GroupedTile tile = memory.tiles.Find(i, a.groups, work.row_tiles, kTokens);
    const int first = a.one_row ? 0 : tile.first;
    for (unsigned step = 0; step < work.steps; ++step, ++fill) {
      const unsigned slot = memory.ring.Slot(fill);
      memory.ring.WaitUntilEmpty(fill);
      memory.ring.Expect(fill, static_cast<int>(sizeof(typename S::Stage)));
#pragma unroll
      for (int box = 0; box < S::kBoxes; ++box) {
        const int column = static_cast<int>(step) * S::kStageCols + box * kBoxCols;
        LoadWeightRows(memory.stages[slot].weights[box], weights, a, tile, kRows, column,
                       &memory.ring.filled[slot]);
        ptx::LoadBox(memory.stages[slot].tokens[box], tokens, {column, first},
                     &memory.ring.filled[slot]);
      }
    }
  }
}

// The same by cp.async, by a warp.
template <int kRows, int kTokens>
__device__ void CopyTiles(const GroupedLinearArgs& a, const GroupedWork& work,
                          typename Shape<kRows, kTokens, KernelForm::kAmpere>::Memory& memory) {
  const auto rows = static_cast<int>(a.rows), cols = static_cast<int>(a.cols);
  const unsigned tiles = memory.tiles.Count(a.groups, work.row_tiles);
  unsigned fill = 0;
  for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) {
    const GroupedTile tile = memory.tiles.Find(i, a.groups, work.row_tiles, kTokens);
    const auto weight_row = [&](int row) {
      if (a.gated) {
        const int column = tile.row_tile * (kRows / 2) + row / (2 * kEight) * kEight + row % kEight;
        const int part = row / kEight % 2;  // gate, or up
        return column < rows / 2 ? tile.group * rows + part * (rows / 2) + column : -1;
      }
      row += tile.row_tile * kRows;
      return row < rows ? tile.group * rows + row : -1;
    };
    const auto token = [&](int row) {
      if (row >= tile.end - tile.first) return -1;
      return a.one_row ? row : tile.first + row;
    };
    for (unsigned step = 0; step < work.steps; ++step, ++fill) {
      const unsigned slot = memory.ring.Slot(fill);
      const int column = static_cast<int>(step) * kBoxCols;
      memory.ring.WaitUntilEmpty(fill);
      mma_tiles::CopyBox<kRows>(memory.stages[slot].weights[0],
                                static_cast<const uint16_t*>(a.weights), cols, cols, column,
                                weight_row);
      mma_tiles::CopyBox<kTokens>(memory.stages[slot].tokens[0], static_cast<const uint16_t*>(a.x),
                                  cols, static_cast<int>(a.x_stride), column, token);
      memory.ring.ArriveWhenCopied(fill);
    }
  }
  memory.ring.WaitForLast(fill);
}

// A lane has two of every 16 rows of the weight, and two of every 8 tokens.
template <int kSums>
__device__ void WriteTile(const GroupedLinearArgs& a, const GroupedTile& tile, int64_t first_row,
                          const float (&sums)[kSums]) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp % 4);
  const int first_token = tile.first + lane % 4 * 2;
  const int left = tile.end - first_token;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = first_row + warp * 16 + lane / 4 + i * 8;
    if (row >= a.rows) continue;
    const float bias = a.bias != nullptr ? a.bias[tile.group * a.rows + row] : 0.0f;
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (8 * j + c >= left) continue;
        float value = sums[4 * j + 2 * i + c];
        if (a.bias != nullptr) value = __fadd_rn(value, bias);
        const int64_t at = (first_token + 8 * j + c) * a.out_stride + row;
        if (a.out_bf16) {
          static_cast<uint16_t*>(a.out)[at] = BF16::Store(value);
        } else {
          static_cast<float*>(a.out)[at] = value;
        }
      }
    }
  }
}

// The same for rows of gate and up that alternate by eights: of every 16 rows, a lane has one of
// gate and the one of up that belongs to it.
template <int kSums>
__device__ void WriteGatedTile(const GroupedLinearArgs& a, const GroupedTile& tile,
                               int64_t first_row, const float (&sums)[kSums]) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp % 4);
  const int first_token = tile.first + lane % 4 * 2;
  const int left = tile.end - first_token;
  const int64_t inner = a.rows / 2;
  const int64_t column = first_row / 2 + warp * kEight + lane / 4;
  if (column >= inner) return;
  const float* const bias = a.bias != nullptr ? a.bias + tile.group * a.rows + column : nullptr;
  const float gate_bias = bias != nullptr ? bias[0] : 0.0f;
  const float up_bias = bias != nullptr ? bias[inner] : 0.0f;
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (8 * j + c >= left) continue;
      float gate = sums[4 * j + c];
      float up = sums[4 * j + 2 + c];
      if (bias != nullptr) {
        gate = __fadd_rn(gate, gate_bias);
        up = __fadd_rn(up, up_bias);
      }
      static_cast<uint16_t*>(a.out)[(first_token + 8 * j + c) * a.out_stride + column] =
          GateSums(/*gelu_tanh=*/false, gate, up);
    }
  }
}

// Multiplies and writes all of the CTA's tiles, by warps of which each four have 64 rows.
template <typename S>
__device__ void MultiplyTiles(const GroupedLinearArgs& a, const GroupedWork& work, unsigned warp,
                              typename S::Memory& memory) {
  const int first_row = static_cast<int>(warp / 4) * kProductRows;
  const unsigned tiles = memory.tiles.Count(a.groups, work.row_tiles);
  float sums[S::kSums];
  unsigned count = 0;
  for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) {
    if constexpr (S::kIsHopper) {
      wgmma_tiles::MultiplyTile(
          count++, work.steps, memory, sums, [&](const typename S::Stage& stage, bool accumulate) {
            wgmma_tiles::MultiplyBoxes(stage.weights, stage.tokens, first_row, accumulate, sums);
          });
    } else {
      mma_tiles::MultiplyTile(count++, work.steps, memory, sums,
                              [&](const typename S::Stage& stage) {
                                const int row = static_cast<int>(warp) * mma_tiles::kProductRows;
                                mma_tiles::MultiplyBoxes(stage.weights, stage.tokens, row, sums);
                              });
    }
    const GroupedTile tile = memory.tiles.Find(i, a.groups, work.row_tiles, S::kTileTokens);
    const int64_t row = int64_t{tile.row_tile} * S::kTileRows + first_row;
    if (a.gated) {
      WriteGatedTile(a, tile, row, sums);
    } else {
      WriteTile(a, tile, row, sums);
    }
  }
}

template <int kRows, int kTokens>
__global__ void __launch_bounds__(Shape<kRows, kTokens, KernelForm::kHopper>::kThreads, 2)
    GroupedGemmKernel(const __grid_constant__ CUtensorMap weights,
                      const __grid_constant__ CUtensorMap tokens,
                      const __grid_constant__ GroupedLinearArgs a, const GroupedWork work) {
  if constexpr (ptx::kIsHopper) {
    using S = Shape<kRows, kTokens, KernelForm::kHopper>;
    DYNAMIC_SHARED(aligned, SwizzleAligned);
    auto& memory = *reinterpret_cast<typename S::Memory*>(aligned);
    ptx::LaunchDependents();
    if (threadIdx.x == 0) memory.ring.Init(S::kConsumers / kWarp);
    ptx::WaitForKernelAhead();
    memory.tiles.Make(a.offsets, a.groups, kTokens);
    // Broadcast, so that the compiler knows that no warp diverges (docs/gpu.md).
    const unsigned warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
    if (warp >= S::kConsumers / kWarp) {
      if (threadIdx.x == S::kConsumers) {
        LoadTiles<kRows, kTokens>(&weights, &tokens, a, work, memory);
      }
      return;
    }
    MultiplyTiles<S>(a, work, warp, memory);
  }
}

template <int kRows, int kTokens>
__global__ void __launch_bounds__(Shape<kRows, kTokens, KernelForm::kAmpere>::kThreads, 2)
    AmpereGroupedGemmKernel(const __grid_constant__ GroupedLinearArgs a, const GroupedWork work) {
  using S = Shape<kRows, kTokens, KernelForm::kAmpere>;
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto& memory = *reinterpret_cast<typename S::Memory*>(aligned);
  ptx::LaunchDependents();
  if (threadIdx.x == 0) memory.ring.Init(S::kConsumers / kWarp, kWarp);
  ptx::WaitForKernelAhead();
  memory.tiles.Make(a.offsets, a.groups, kTokens);
  if (threadIdx.x >= S::kConsumers) {
    CopyTiles<kRows, kTokens>(a, work, memory);
    return;
  }
  MultiplyTiles<S>(a, work, threadIdx.x / kWarp, memory);
}

template <int kRows, int kTokens, KernelForm kForm>
cudaError_t Launch(const GroupedLinearArgs& args, int ctas, cudaStream_t stream) {
  using S = Shape<kRows, kTokens, kForm>;
  const GroupedTileShape tile = {kRows, kTokens};
  const GroupedLaunch launch = {.box_tokens = kTokens,
                                .stage_cols = S::kStageCols,
                                .threads = S::kThreads,
                                .shared_bytes = sizeof(typename S::Memory)};
  if constexpr (S::kIsHopper) {
    return LaunchOnTiles(&GroupedGemmKernel<kRows, kTokens>, args, tile, launch, ctas, stream);
  } else {
    return LaunchWithMaps(&AmpereGroupedGemmKernel<kRows, kTokens>, args, tile, launch, ctas,
                          HasDependents(), stream);
  }
}

}  // namespace

bool FitsGroupedGemm(const GroupedLinearArgs& args) {
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  const bool can_gate = args.out_bf16 && args.rows % (2 * kEight) == 0;
  return args.bf16 && (!args.gated || can_gate) && args.cols % 8 == 0 && args.x_stride % 8 == 0 &&
         (address(args.x) | address(args.weights)) % 16 == 0;
}

cudaError_t LaunchGroupedGemm(const GroupedLinearArgs& args, GroupedTileShape tile, int ctas,
                              KernelForm form, cudaStream_t stream) {
  if (args.num_rows * args.rows == 0) return cudaSuccess;
  if (args.groups > kMaxGroups || !FitsGroupedGemm(args)) return cudaErrorInvalidValue;
  return wgmma_tiles::LaunchTile<kGroupedTiles>(tile, [&]<int kRows, int kTokens>() {
    constexpr bool kIsWide = kTokens == kWideGroupedTile.tokens;
    if (form == KernelForm::kHopper) {
      if constexpr (kIsWide) {
        return LaunchWideGroupedGemm(args, ctas, stream);
      } else {
        return Launch<kRows, kTokens, KernelForm::kHopper>(args, ctas, stream);
      }
    }
    if constexpr (kHasAmpereForm && !kIsWide) {
      return Launch<kRows, kTokens, KernelForm::kAmpere>(args, ctas, stream);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace tokamak::cuda
