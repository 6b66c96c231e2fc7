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
// Shared memory is at most 110 KB, so that two CTAs fit into an SM: one writes its outputs while
// the other multiplies.
#include "ops/cuda/grouped_gemm.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/grouped_tiles.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda {
namespace {

constexpr int kProductRows = 64;  // of a wgmma's first operand
constexpr int kProductCols = 16;
constexpr int kBoxCols = 64;
constexpr int kRowBytes = 128;  // of a box: what a swizzle spans
constexpr int kSharedBytes = 110 << 10;

template <int kRows, int kTokens>
struct Shape {
  static constexpr int kConsumers = 2 * kRows;  // threads: a warpgroup for each 64 rows
  static constexpr int kThreads = kConsumers + kWarp;
  static constexpr int kSums = kTokens / 2;             // of a thread
  static constexpr int kBoxes = kTokens <= 32 ? 2 : 1;  // of each operand in a stage
  static constexpr int kStageCols = kBoxes * kBoxCols;

  struct Stage {
    uint8_t weights[kBoxes][kRows * kRowBytes];
    uint8_t tokens[kBoxes][kTokens * kRowBytes];
  };
  static constexpr int kStages =
      (kSharedBytes - static_cast<int>(sizeof(GroupedTiles) + 2 * sizeof(SwizzleAligned))) /
      static_cast<int>(sizeof(Stage));
  // A warpgroup releases a slot only when the products of the next one are under way.
  static_assert(kStages >= 3);

  struct alignas(SwizzleAligned) Memory {
    Stage stages[kStages];
    RingBarriers<kStages> ring;
    GroupedTiles tiles;
  };
  static_assert(sizeof(Memory) <= kSharedBytes);
};

struct Work {
  unsigned row_tiles;  // of a weight
  unsigned steps;      // stages of a tile
};

// Requests the stages of all of the CTA's tiles, by one thread.
template <int kRows, int kTokens>
__device__ void LoadTiles(const CUtensorMap* weights, const CUtensorMap* tokens,
                          const GroupedLinearArgs& a, const Work& work,
                          typename Shape<kRows, kTokens>::Memory& memory) {
  using S = Shape<kRows, kTokens>;
  const unsigned tiles = memory.tiles.Count(a.groups, work.row_tiles);
  unsigned fill = 0;
  for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) {
    const GroupedTile tile = memory.tiles.Find(i, a.groups, work.row_tiles, kTokens);
    const int row = tile.group * static_cast<int>(a.rows) + tile.row_tile * kRows;
    for (unsigned step = 0; step < work.steps; ++step, ++fill) {
      const unsigned slot = memory.ring.Slot(fill);
      memory.ring.WaitUntilEmpty(fill);
      memory.ring.Expect(fill, static_cast<int>(sizeof(typename S::Stage)));
#pragma unroll
      for (int box = 0; box < S::kBoxes; ++box) {
        const int column = static_cast<int>(step) * S::kStageCols + box * kBoxCols;
        ptx::LoadBox(memory.stages[slot].weights[box], weights, {column, row},
                     &memory.ring.filled[slot]);
        ptx::LoadBox(memory.stages[slot].tokens[box], tokens, {column, tile.first},
                     &memory.ring.filled[slot]);
      }
    }
  }
}

// Multiplies all columns of the CTA's tile number `tile`, by a warpgroup: rows of the weight from
// `first_row` of the tile on.
template <int kRows, int kTokens>
__device__ void MultiplyTile(unsigned tile, unsigned steps, int first_row,
                             typename Shape<kRows, kTokens>::Memory& memory,
                             float (&sums)[Shape<kRows, kTokens>::kSums]) {
  using S = Shape<kRows, kTokens>;
  const unsigned first = tile * steps;
#pragma unroll
  for (float& sum : sums) sum = 0;
  ptx::PinRegisters(sums);
  for (unsigned fill = first; fill < first + steps; ++fill) {
    memory.ring.WaitUntilFilled(fill);
    const typename S::Stage& stage = memory.stages[memory.ring.Slot(fill)];
    ptx::FenceRegisters();
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      const uint64_t weights =
          ptx::DescribeTile(stage.weights[box] + first_row * kRowBytes, kRowBytes, 16, 1024);
      const uint64_t tokens = ptx::DescribeTile(stage.tokens[box], kRowBytes, 16, 1024);
#pragma unroll
      for (int k = 0; k < kBoxCols / kProductCols; ++k) {
        const uint64_t at = k * kProductCols * 2 / 16;  // a descriptor counts units of 16 bytes
        ptx::WarpgroupMultiplyBf16(sums, weights + at, tokens + at, fill > first || box + k > 0);
      }
    }
    ptx::CommitProducts();
    // The stage before is free once its products are done; this one's may still run.
    ptx::WaitForProducts<1>();
    if (fill > first) memory.ring.ReleaseAfterProducts(fill - 1);
  }
  ptx::WaitForProducts<0>();
  ptx::PinRegisters(sums);
  memory.ring.ReleaseAfterProducts(first + steps - 1);
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

template <int kRows, int kTokens>
__global__ void __launch_bounds__(Shape<kRows, kTokens>::kThreads, 2)
    GroupedGemmKernel(const __grid_constant__ CUtensorMap weights,
                      const __grid_constant__ CUtensorMap tokens,
                      const __grid_constant__ GroupedLinearArgs a, const Work work) {
  if constexpr (ptx::kIsHopper) {
    using S = Shape<kRows, kTokens>;
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
    const int first_row = static_cast<int>(warp / 4) * kProductRows;
    const unsigned tiles = memory.tiles.Count(a.groups, work.row_tiles);
    float sums[S::kSums];
    unsigned count = 0;
    for (unsigned i = blockIdx.x; i < tiles; i += gridDim.x) {
      MultiplyTile<kRows, kTokens>(count++, work.steps, first_row, memory, sums);
      const GroupedTile tile = memory.tiles.Find(i, a.groups, work.row_tiles, kTokens);
      WriteTile(a, tile, int64_t{tile.row_tile} * kRows + first_row, sums);
    }
  }
}

// [rows, cols] in boxes of `box_rows` rows and 64 columns.
CUresult MapMatrix(const void* data, int64_t rows, int64_t cols, int64_t stride, int box_rows,
                   CUtensorMap* map) {
  return MakeTensorMap({.data = const_cast<void*>(data),
                        .element_bytes = 2,
                        .sizes = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                        .strides = {static_cast<uint64_t>(stride) * 2},
                        .box = {kBoxCols, static_cast<uint32_t>(box_rows)},
                        .swizzle = kRowBytes},
                       map);
}

template <int kRows, int kTokens>
cudaError_t Launch(const GroupedLinearArgs& args, int ctas, cudaStream_t stream) {
  using S = Shape<kRows, kTokens>;
  CUtensorMap weights;
  CUtensorMap tokens;
  if (MapMatrix(args.weights, args.groups * args.rows, args.cols, args.cols, kRows, &weights) !=
          CUDA_SUCCESS ||
      MapMatrix(args.x, args.num_rows, args.cols, args.x_stride, kTokens, &tokens) !=
          CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  const Work work = {.row_tiles = static_cast<unsigned>(CeilDiv(args.rows, int64_t{kRows})),
                     .steps = static_cast<unsigned>(CeilDiv(args.cols, int64_t{S::kStageCols}))};
  const auto kernel = &GroupedGemmKernel<kRows, kTokens>;
  constexpr size_t kBytes = sizeof(typename S::Memory);
  const cudaError_t error = AllowSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t most =
      std::min(args.num_rows, args.num_rows / kTokens + args.groups) * work.row_tiles;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(most, ctas));
  return LaunchGroups({.dependent = true}, kernel, grid, S::kThreads, kBytes, stream, weights,
                      tokens, args, work);
}

template <size_t... kIndices>
cudaError_t LaunchTile(std::index_sequence<kIndices...>, const GroupedLinearArgs& args,
                       GroupedTileShape tile, int ctas, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  const auto launch_if = [&]<size_t kIndex>(std::integral_constant<size_t, kIndex>) {
    constexpr GroupedTileShape kTile = kGroupedTiles[kIndex];
    if (tile == kTile) error = Launch<kTile.rows, kTile.tokens>(args, ctas, stream);
  };
  (launch_if(std::integral_constant<size_t, kIndices>()), ...);
  return error;
}

}  // namespace

bool FitsGroupedGemm(const GroupedLinearArgs& args) {
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  return args.bf16 && args.cols % 8 == 0 && args.x_stride % 8 == 0 &&
         (address(args.x) | address(args.weights)) % 16 == 0;
}

cudaError_t LaunchGroupedGemm(const GroupedLinearArgs& args, GroupedTileShape tile, int ctas,
                              cudaStream_t stream) {
  if (args.num_rows * args.rows == 0) return cudaSuccess;
  if (args.groups > kMaxGroups || !FitsGroupedGemm(args)) return cudaErrorInvalidValue;
  return LaunchTile(std::make_index_sequence<kGroupedTiles.size()>(), args, tile, ctas, stream);
}

}  // namespace tokamak::cuda
