// Products of few tokens (skinny_gemm.h). Bound: the weight's bytes, if one tile has all tokens.
// Otherwise the tiles of further tokens read the same rows again, mostly from the L2.
//
// A CTA takes tiles of a few rows of the weight and a few tokens, each with all columns. One warp
// requests stages of columns by TMA: both operands in boxes of 64 columns, which are rows of 128
// swizzled bytes. A warpgroup multiplies them. Wide tiles have 64 rows of the weight as wgmma's 64
// rows, and the tokens as its N. Narrow tiles have the tokens as wgmma's 64 rows, and fewer than 64
// rows of the weight as its N, so that a weight with few rows still gives every SM a tile. Rows,
// columns and tokens beyond the tensors' ends arrive as zeros, which add nothing.
//
// If gate and up are to be combined, a tile has eight rows of gate, then the same eight of up, and
// so on. The tensor map collects them, and a thread has both sums of an output.
//
// Shared memory is at most 110 KB, and 32K registers serve a CTA, so that the next kernel's CTAs
// find room beside this one's, and request their weights while this one runs. They are released when
// the kernel ahead has ended. Released earlier, kernels run ahead one behind the other, and their
// requests delay those of short kernels between them: a step of Qwen3-0.6B took 6% longer.
#include "ops/cuda/skinny_gemm.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/activation.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/wgmma_tiles.cuh"

namespace tokamak::cuda {
namespace {

using wgmma_tiles::kBoxCols;
using wgmma_tiles::kEight;
using wgmma_tiles::kProductRows;
using wgmma_tiles::kRowBytes;
using wgmma_tiles::kSharedBytes;

constexpr int kConsumers = 4 * kWarp;
constexpr int kThreads = kConsumers + kWarp;

template <int kRows, int kTokens>
struct Shape {
  static constexpr bool kIsNarrow = kRows < kProductRows;
  static constexpr int kSums = (kIsNarrow ? kRows : kTokens) / 2;  // of a thread
  // Boxes of each operand in a stage. With at least 8 KB of the weight per stage, one thread can
  // request stages as fast as memory delivers them.
  static constexpr int kBoxes = kIsNarrow ? kProductRows / kRows : kTokens <= 32 ? 2 : 1;
  static constexpr int kWeightBytes = kRows * kRowBytes;  // of a box
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  static constexpr int kStageCols = kBoxes * kBoxCols;

  struct Stage {
    uint8_t tokens[kBoxes][kTokenBytes];
    uint8_t weights[kBoxes][kWeightBytes];
  };
  // A narrow tile's wgmma reads 64 rows from the first token of a box on. The rows after its tokens
  // belong to other boxes of the stage. Their sums are never written, and rows do not mix.
  static_assert(!kIsNarrow || (kBoxes - 1) * kTokenBytes + kProductRows * kRowBytes <=
                                  static_cast<int>(sizeof(Stage)));

  static constexpr int kStages =
      (kSharedBytes - static_cast<int>(sizeof(SwizzleAligned))) / static_cast<int>(sizeof(Stage));
  // The warpgroup releases a slot only when the products of the next one are under way.
  static_assert(kStages >= 3);

  struct alignas(SwizzleAligned) Memory {
    Stage stages[kStages];
    RingBarriers<kStages> ring;
  };
  static_assert(sizeof(Memory) <= kSharedBytes);
};

// How a launch is cut. CTA i takes tiles i, i + ctas, ...
struct Work {
  unsigned tiles;
  unsigned token_tiles;  // successive tiles that have the same rows of the weight
  unsigned steps;        // stages of a tile
};

// Requests the stages of all of the CTA's tiles, by one thread.
template <int kRows, int kTokens, bool kGated>
class Loader {
 public:
  using S = Shape<kRows, kTokens>;

  __device__ Loader(const CUtensorMap* weights, const CUtensorMap* tokens, const Work& work,
                    typename S::Memory& memory)
      : weights_(weights), tokens_(tokens), work_(work), memory_(memory) {}

  // Requests the first weights at once, because they do not depend on the kernel ahead.
  __device__ void Run() {
    const unsigned tiles = (work_.tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const unsigned fills = tiles * work_.steps;
    const unsigned early = min(fills, static_cast<unsigned>(S::kStages));
    ptx::PrefetchMap(tokens_);
    Place place = BeginningOf(blockIdx.x);
    for (unsigned i = 0; i < early; ++i, Advance(place)) LoadWeights(i, place);
    ptx::WaitForKernelAhead();
    ptx::LaunchDependents();
    place = BeginningOf(blockIdx.x);
    for (unsigned i = 0; i < early; ++i, Advance(place)) LoadTokens(i, place);
    for (unsigned i = early; i < fills; ++i, Advance(place)) {
      memory_.ring.WaitUntilEmpty(i);
      LoadWeights(i, place);
      LoadTokens(i, place);
    }
  }

 private:
  // The place of a stage. Advance counts it up: computing it anew with divisions takes longer than
  // the stage's copy.
  struct Place {
    unsigned tile, step;
    int row, token, column;
  };
  __device__ Place BeginningOf(unsigned tile) const {
    return {.tile = tile,
            .step = 0,
            .row = static_cast<int>(tile / work_.token_tiles * kRows),
            .token = static_cast<int>(tile % work_.token_tiles * kTokens),
            .column = 0};
  }
  __device__ void Advance(Place& place) const {
    place.column += S::kStageCols;
    if (++place.step == work_.steps) place = BeginningOf(place.tile + gridDim.x);
  }
  __device__ void LoadWeights(unsigned fill, const Place& place) {
    const unsigned slot = memory_.ring.Slot(fill);
    memory_.ring.Expect(fill, static_cast<int>(sizeof(typename S::Stage)));
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      uint8_t* const to = memory_.stages[slot].weights[box];
      const int column = place.column + box * kBoxCols;
      if constexpr (kGated) {
        ptx::LoadBox(to, weights_, {column, 0, 0, place.row / (2 * kEight)},
                     &memory_.ring.filled[slot]);
      } else {
        ptx::LoadBox(to, weights_, {column, place.row}, &memory_.ring.filled[slot]);
      }
    }
  }
  __device__ void LoadTokens(unsigned fill, const Place& place) {
    const unsigned slot = memory_.ring.Slot(fill);
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      ptx::LoadBox(memory_.stages[slot].tokens[box], tokens_,
                   {place.column + box * kBoxCols, place.token}, &memory_.ring.filled[slot]);
    }
  }

  const CUtensorMap* weights_;
  const CUtensorMap* tokens_;
  const Work& work_;
  typename S::Memory& memory_;
};

template <int kRows, int kTokens>
__device__ void MultiplyStage(const typename Shape<kRows, kTokens>::Stage& stage, bool accumulate,
                              float (&sums)[Shape<kRows, kTokens>::kSums]) {
  if constexpr (Shape<kRows, kTokens>::kIsNarrow) {
    wgmma_tiles::MultiplyBoxes(stage.tokens, stage.weights, 0, accumulate, sums);
  } else {
    wgmma_tiles::MultiplyBoxes(stage.weights, stage.tokens, 0, accumulate, sums);
  }
}

__device__ inline void Store(const SkinnyGemmArgs& a, int64_t at, float value) {
  if (a.out_bf16) {
    static_cast<uint16_t*>(a.out)[at] = BF16::Store(value);
  } else {
    static_cast<float*>(a.out)[at] = value;
  }
}

// m and n are the two dimensions of wgmma's sums. m is the row of the weight and n the token; in
// narrow tiles it is the other way round. A lane has two of every 16 m, and two of every 8 n.
template <int kRows, int kTokens>
__device__ void WriteTile(const SkinnyGemmArgs& a, unsigned row_tile, unsigned token_tile,
                          const float (&sums)[Shape<kRows, kTokens>::kSums]) {
  constexpr bool kIsNarrow = Shape<kRows, kTokens>::kIsNarrow;
  const unsigned lane = threadIdx.x % kWarp;
  const int64_t row = row_tile * int64_t{kRows}, token = token_tile * int64_t{kTokens};
  const int64_t first_n = (kIsNarrow ? row : token) + lane % 4 * 2;
  const int64_t n_stride = kIsNarrow ? 1 : a.out_stride;
  const auto n_left = static_cast<int>((kIsNarrow ? a.rows : a.num_tokens) - first_n);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned m_in_tile = threadIdx.x / kWarp * 16 + lane / 4 + static_cast<unsigned>(i) * 8;
    const int64_t m = (kIsNarrow ? token : row) + m_in_tile;
    if (m >= (kIsNarrow ? a.num_tokens : a.rows) || (kIsNarrow && m_in_tile >= kTokens)) continue;
    int64_t at = m * (kIsNarrow ? a.out_stride : 1) + first_n * n_stride;
    const int64_t first_bias = kIsNarrow ? first_n : m;
#pragma unroll
    for (int j = 0; j < Shape<kRows, kTokens>::kSums / 4; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int n = 8 * j + c;
        if (n >= n_left) continue;
        float value = sums[4 * j + 2 * i + c];
        if (a.bias != nullptr) value = __fadd_rn(value, a.bias[first_bias + (kIsNarrow ? n : 0)]);
        Store(a, at + c * n_stride, value);
      }
      at += 8 * n_stride;
    }
  }
}

// The same for rows of gate and up that alternate by eights. A lane has both sums of an output.
template <int kRows, int kTokens>
__device__ void WriteGatedTile(const SkinnyGemmArgs& a, unsigned row_tile, unsigned token_tile,
                               const float (&sums)[Shape<kRows, kTokens>::kSums]) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t column = row_tile * int64_t{kRows / 2}, token = token_tile * int64_t{kTokens};
  const auto columns_left = static_cast<int>(min(a.rows / 2 - column, int64_t{kRows / 2}));
  const auto tokens_left = static_cast<int>(min(a.num_tokens - token, int64_t{kTokens}));
  auto* const out = static_cast<uint16_t*>(a.out) + token * a.out_stride + column;
  const auto write = [&](int t, int i, float gate, float up) {
    if (t >= tokens_left || i >= columns_left) return;
    out[t * a.out_stride + i] = GateSums(a.activation == Activation::kGeluTanh, gate, up);
  };
  const int of_four = lane % 4 * 2, of_eight = lane / 4;
#pragma unroll
  for (int j = 0; j < Shape<kRows, kTokens>::kSums / 4; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (Shape<kRows, kTokens>::kIsNarrow) {
        // Two tokens; an even j has gate, and the next one up, of eight columns.
        const int gate = j / 2 * 8 + j % 2 * 2 + c;
        write(warp * 16 + of_eight + j % 2 * 8, j / 2 * kEight + of_four + c, sums[gate],
              sums[gate + 4]);
      } else {
        write(8 * j + of_four + c, warp * kEight + of_eight, sums[4 * j + c], sums[4 * j + 2 + c]);
      }
    }
  }
}

template <int kRows, int kTokens, bool kGated>
__global__ void __launch_bounds__(kThreads, 2)
    SkinnyGemmKernel(const __grid_constant__ CUtensorMap weights,
                     const __grid_constant__ CUtensorMap tokens,
                     const __grid_constant__ SkinnyGemmArgs a, const Work work) {
  if constexpr (ptx::kIsHopper) {
    using S = Shape<kRows, kTokens>;
    DYNAMIC_SHARED(aligned, SwizzleAligned);
    auto& memory = *reinterpret_cast<typename S::Memory*>(aligned);
    if (threadIdx.x == 0) memory.ring.Init(kConsumers / kWarp);
    __syncthreads();
    // Broadcast, so that the compiler knows that no warp diverges. It keeps wgmma's descriptors in
    // uniform registers then, instead of copying them there before each product.
    if (__shfl_sync(kAllLanes, threadIdx.x / kWarp, 0) >= kConsumers / kWarp) {
      if (threadIdx.x == kConsumers) {
        Loader<kRows, kTokens, kGated>(&weights, &tokens, work, memory).Run();
      }
      return;
    }
    float sums[S::kSums];
    unsigned count = 0;
    for (unsigned tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
      wgmma_tiles::MultiplyTile(count++, work.steps, memory, sums,
                                [&](const typename S::Stage& stage, bool accumulate) {
                                  MultiplyStage<kRows, kTokens>(stage, accumulate, sums);
                                });
      const unsigned row_tile = tile / work.token_tiles, token_tile = tile % work.token_tiles;
      if constexpr (kGated) {
        WriteGatedTile<kRows, kTokens>(a, row_tile, token_tile, sums);
      } else {
        WriteTile<kRows, kTokens>(a, row_tile, token_tile, sums);
      }
    }
  }
}

template <int kRows, int kTokens, bool kGated>
cudaError_t Launch(const SkinnyGemmArgs& args, int ctas, cudaStream_t stream) {
  using S = Shape<kRows, kTokens>;
  CUtensorMap weights;
  CUtensorMap tokens;
  using wgmma_tiles::MapMatrix;
  const CUresult mapped =
      kGated ? wgmma_tiles::MapGateUp(args.weight, 1, args.rows / 2, args.cols, kRows, &weights)
             : MapMatrix(args.weight, args.rows, args.cols, args.cols, kRows, &weights);
  if (mapped != CUDA_SUCCESS || MapMatrix(args.x, args.num_tokens, args.cols, args.x_stride,
                                          kTokens, &tokens) != CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  const int64_t token_tiles = CeilDiv(args.num_tokens, kTokens);
  const int64_t tiles = CeilDiv(args.rows, kRows) * token_tiles;
  const Work work = {.tiles = static_cast<unsigned>(tiles),
                     .token_tiles = static_cast<unsigned>(token_tiles),
                     .steps = static_cast<unsigned>(CeilDiv(args.cols, S::kStageCols))};
  const auto kernel = &SkinnyGemmKernel<kRows, kTokens, kGated>;
  constexpr size_t kBytes = sizeof(typename S::Memory);
  const cudaError_t error = AllowSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(tiles, ctas));
  return LaunchGroups({.dependent = true}, kernel, grid, kThreads, kBytes, stream, weights, tokens,
                      args, work);
}

}  // namespace

bool FitsGatedSkinnyGemm(const SkinnyGemmArgs& args) {
  return (args.activation == Activation::kSilu || args.activation == Activation::kGeluTanh) &&
         args.bias == nullptr && args.out_bf16 && args.rows % (2 * kEight) == 0;
}

cudaError_t LaunchSkinnyGemm(const SkinnyGemmArgs& args, SkinnyTile tile, int ctas,
                             cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  if (args.gated && !FitsGatedSkinnyGemm(args)) return cudaErrorInvalidValue;
  return wgmma_tiles::LaunchTile<kSkinnyTiles>(tile, [&]<int kRows, int kTokens>() {
    return args.gated ? Launch<kRows, kTokens, true>(args, ctas, stream)
                      : Launch<kRows, kTokens, false>(args, ctas, stream);
  });
}

}  // namespace tokamak::cuda
