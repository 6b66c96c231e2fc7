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
// GPUs without TMA and wgmma run the other form of the kernel. There the 32 lanes of a warp copy
// the same boxes by cp.async, and mma.sync multiplies them: the rows of wgmma's first operand are
// divided among warps as wgmma divides them, so that a thread has the same sums. Shared memory is
// at most 49 KB then.
//
// On Hopper, shared memory is at most 110 KB, and 32K registers serve a CTA, so that the next
// kernel's CTAs find room beside this one's, and request their weights while this one runs. They
// are released when the kernel ahead has ended. Released earlier, kernels run ahead one behind the
// other, and their requests delay those of short kernels between them: a step of Qwen3-0.6B took 6%
// longer.
#include "ops/cuda/skinny_gemm.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/activation.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma_tiles.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/wgmma_tiles.cuh"

namespace tokamak::cuda {
namespace {

using wgmma_tiles::kBoxCols;
using wgmma_tiles::kEight;
using wgmma_tiles::kProductRows;
using wgmma_tiles::kRowBytes;

template <int kRows, int kTokens, KernelForm kForm>
struct Shape {
  static constexpr bool kIsHopper = kForm == KernelForm::kHopper;
  static constexpr int kTileRows = kRows, kTileTokens = kTokens;
  static constexpr bool kIsNarrow = kRows < kProductRows;
  // Threads that multiply. Those of wgmma are a warpgroup; others need not multiply what is beyond
  // the tokens.
  static constexpr int kConsumers =
      kIsHopper || !kIsNarrow ? 4 * kWarp : (kTokens + 15) / mma_tiles::kProductRows * kWarp;
  static constexpr int kThreads = kConsumers + kWarp;
  static constexpr int kSums = (kIsNarrow ? kRows : kTokens) / 2;  // of a thread
  // Boxes of each operand in a stage. With at least 8 KB of the weight per stage, one thread can
  // request stages as fast as memory delivers them.
  static constexpr int kBoxes = !kIsHopper      ? (kRows == 16 ? 2 : 1)
                                : kIsNarrow     ? kProductRows / kRows
                                : kTokens <= 32 ? 2
                                                : 1;
  static constexpr int kWeightBytes = kRows * kRowBytes;  // of a box
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  static constexpr int kStageCols = kBoxes * kBoxCols;

  struct Stage {
    uint8_t tokens[kBoxes][kTokenBytes];
    uint8_t weights[kBoxes][kWeightBytes];
  };
  // A narrow tile's wgmma reads 64 rows from the first token of a box on, mma.sync 16 for each
  // warp. The rows after its tokens belong to other boxes of the stage. Their sums are never
  // written, and rows do not mix.
  static constexpr int kRowsRead = kConsumers / kWarp * mma_tiles::kProductRows;
  static_assert(!kIsNarrow || (kBoxes - 1) * kTokenBytes + kRowsRead * kRowBytes <=
                                  static_cast<int>(sizeof(Stage)));

  static constexpr int kSharedBytes =
      kIsHopper ? wgmma_tiles::kSharedBytes : mma_tiles::kSharedBytes;
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

// The place of a stage.
struct Place {
  unsigned tile, step;
  int row, token, column;
};

// Copies stages by TMA, by one thread.
template <int kRows, int kTokens, bool kGated>
struct BoxCopies {
  using S = Shape<kRows, kTokens, KernelForm::kHopper>;

  __device__ void Begin() const { ptx::PrefetchMap(tokens); }
  __device__ void LoadWeights(unsigned fill, const Place& place) const {
    const unsigned slot = memory.ring.Slot(fill);
    memory.ring.Expect(fill, static_cast<int>(sizeof(typename S::Stage)));
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      uint8_t* const to = memory.stages[slot].weights[box];
      const int column = place.column + box * kBoxCols;
      if constexpr (kGated) {
        ptx::LoadBox(to, weights, {column, 0, 0, place.row / (2 * kEight)},
                     &memory.ring.filled[slot]);
      } else {
        ptx::LoadBox(to, weights, {column, place.row}, &memory.ring.filled[slot]);
      }
    }
  }
  __device__ void LoadTokens(unsigned fill, const Place& place) const {
    const unsigned slot = memory.ring.Slot(fill);
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      ptx::LoadBox(memory.stages[slot].tokens[box], tokens,
                   {place.column + box * kBoxCols, place.token}, &memory.ring.filled[slot]);
    }
  }
  __device__ void End(unsigned) const {}

  const CUtensorMap* weights;
  const CUtensorMap* tokens;
  typename S::Memory& memory;
};

// Copies stages by cp.async, by a warp.
template <int kRows, int kTokens, bool kGated>
struct LaneCopies {
  using S = Shape<kRows, kTokens, KernelForm::kAmpere>;

  __device__ void Begin() const {}
  __device__ void LoadWeights(unsigned fill, const Place& place) const {
    const auto rows = static_cast<int>(a.rows);
    const auto row_of = [&](int i) {
      if constexpr (kGated) {
        const int inner = rows / 2;
        const int column = place.row / 2 + i / (2 * kEight) * kEight + i % kEight;  // of the output
        return column < inner ? i / kEight % 2 * inner + column : -1;
      } else {
        return place.row + i < rows ? place.row + i : -1;
      }
    };
    const auto cols = static_cast<int>(a.cols);
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      mma_tiles::CopyBox<kRows>(memory.stages[memory.ring.Slot(fill)].weights[box],
                                static_cast<const uint16_t*>(a.weight), cols, cols,
                                place.column + box * kBoxCols, row_of);
    }
  }
  __device__ void LoadTokens(unsigned fill, const Place& place) const {
    const auto row_of = [&](int i) {
      return place.token + i < static_cast<int>(a.num_tokens) ? place.token + i : -1;
    };
#pragma unroll
    for (int box = 0; box < S::kBoxes; ++box) {
      mma_tiles::CopyBox<kTokens>(memory.stages[memory.ring.Slot(fill)].tokens[box],
                                  static_cast<const uint16_t*>(a.x), static_cast<int>(a.cols),
                                  static_cast<int>(a.x_stride), place.column + box * kBoxCols,
                                  row_of);
    }
    memory.ring.ArriveWhenCopied(fill);
  }
  __device__ void End(unsigned fills) const { memory.ring.WaitForLast(fills); }

  const SkinnyGemmArgs& a;
  typename S::Memory& memory;
};

// Requests the stages of all of the CTA's tiles.
template <typename Copies>
class Loader {
 public:
  using S = typename Copies::S;

  __device__ Loader(const Work& work, const Copies& copies) : work_(work), copies_(copies) {}

  // Requests the first weights at once, because they do not depend on the kernel ahead.
  __device__ void Run() {
    const unsigned tiles = (work_.tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const unsigned fills = tiles * work_.steps;
    const unsigned early = min(fills, static_cast<unsigned>(S::kStages));
    copies_.Begin();
    Place place = BeginningOf(blockIdx.x);
    for (unsigned i = 0; i < early; ++i, Advance(place)) copies_.LoadWeights(i, place);
    ptx::WaitForKernelAhead();
    ptx::LaunchDependents();
    place = BeginningOf(blockIdx.x);
    for (unsigned i = 0; i < early; ++i, Advance(place)) copies_.LoadTokens(i, place);
    for (unsigned i = early; i < fills; ++i, Advance(place)) {
      copies_.memory.ring.WaitUntilEmpty(i);
      copies_.LoadWeights(i, place);
      copies_.LoadTokens(i, place);
    }
    copies_.End(fills);
  }

 private:
  __device__ Place BeginningOf(unsigned tile) const {
    return {.tile = tile,
            .step = 0,
            .row = static_cast<int>(tile / work_.token_tiles * S::kTileRows),
            .token = static_cast<int>(tile % work_.token_tiles * S::kTileTokens),
            .column = 0};
  }
  // Counts the place up: computing it anew with divisions takes longer than the stage's copy.
  __device__ void Advance(Place& place) const {
    place.column += S::kStageCols;
    if (++place.step == work_.steps) place = BeginningOf(place.tile + gridDim.x);
  }

  const Work& work_;
  const Copies copies_;
};

// Multiplies all columns of the CTA's tile number `tile`.
template <typename S>
__device__ void MultiplyTile(unsigned tile, unsigned steps, typename S::Memory& memory,
                             float (&sums)[S::kSums]) {
  if constexpr (S::kIsHopper) {
    wgmma_tiles::MultiplyTile(
        tile, steps, memory, sums, [&](const typename S::Stage& stage, bool accumulate) {
          if constexpr (S::kIsNarrow) {
            wgmma_tiles::MultiplyBoxes(stage.tokens, stage.weights, 0, accumulate, sums);
          } else {
            wgmma_tiles::MultiplyBoxes(stage.weights, stage.tokens, 0, accumulate, sums);
          }
        });
  } else {
    const int first_row = static_cast<int>(threadIdx.x / kWarp) * mma_tiles::kProductRows;
    mma_tiles::MultiplyTile(tile, steps, memory, sums, [&](const typename S::Stage& stage) {
      if constexpr (S::kIsNarrow) {
        mma_tiles::MultiplyBoxes(stage.tokens, stage.weights, first_row, sums);
      } else {
        mma_tiles::MultiplyBoxes(stage.weights, stage.tokens, first_row, sums);
      }
    });
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
template <typename S>
__device__ void WriteTile(const SkinnyGemmArgs& a, unsigned row_tile, unsigned token_tile,
                          const float (&sums)[S::kSums]) {
  constexpr bool kIsNarrow = S::kIsNarrow;
  constexpr int kRows = S::kTileRows, kTokens = S::kTileTokens;
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
    for (int j = 0; j < S::kSums / 4; ++j) {
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
template <typename S>
__device__ void WriteGatedTile(const SkinnyGemmArgs& a, unsigned row_tile, unsigned token_tile,
                               const float (&sums)[S::kSums]) {
  constexpr int kRows = S::kTileRows, kTokens = S::kTileTokens;
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
  for (int j = 0; j < S::kSums / 4; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (S::kIsNarrow) {
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

// Multiplies and writes all of the CTA's tiles.
template <typename S, bool kGated>
__device__ void MultiplyTiles(const SkinnyGemmArgs& a, const Work& work,
                              typename S::Memory& memory) {
  float sums[S::kSums];
  unsigned count = 0;
  for (unsigned tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
    MultiplyTile<S>(count++, work.steps, memory, sums);
    const unsigned row_tile = tile / work.token_tiles, token_tile = tile % work.token_tiles;
    if constexpr (kGated) {
      WriteGatedTile<S>(a, row_tile, token_tile, sums);
    } else {
      WriteTile<S>(a, row_tile, token_tile, sums);
    }
  }
}

template <int kRows, int kTokens, bool kGated>
__global__ void __launch_bounds__(Shape<kRows, kTokens, KernelForm::kHopper>::kThreads, 2)
    SkinnyGemmKernel(const __grid_constant__ CUtensorMap weights,
                     const __grid_constant__ CUtensorMap tokens,
                     const __grid_constant__ SkinnyGemmArgs a, const Work work) {
  if constexpr (ptx::kIsHopper) {
    using Copies = BoxCopies<kRows, kTokens, kGated>;
    using S = typename Copies::S;
    DYNAMIC_SHARED(aligned, SwizzleAligned);
    auto& memory = *reinterpret_cast<typename S::Memory*>(aligned);
    if (threadIdx.x == 0) memory.ring.Init(S::kConsumers / kWarp);
    __syncthreads();
    // Broadcast, so that the compiler knows that no warp diverges. It keeps wgmma's descriptors in
    // uniform registers then, instead of copying them there before each product.
    if (__shfl_sync(kAllLanes, threadIdx.x / kWarp, 0) >= S::kConsumers / kWarp) {
      if (threadIdx.x == S::kConsumers) {
        Loader<Copies>(work, {&weights, &tokens, memory}).Run();
      }
      return;
    }
    MultiplyTiles<S, kGated>(a, work, memory);
  }
}

template <int kRows, int kTokens, bool kGated>
__global__ void __launch_bounds__(Shape<kRows, kTokens, KernelForm::kAmpere>::kThreads, 2)
    AmpereSkinnyGemmKernel(const __grid_constant__ SkinnyGemmArgs a, const Work work) {
  using Copies = LaneCopies<kRows, kTokens, kGated>;
  using S = typename Copies::S;
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto& memory = *reinterpret_cast<typename S::Memory*>(aligned);
  if (threadIdx.x == 0) memory.ring.Init(S::kConsumers / kWarp, kWarp);
  __syncthreads();
  if (threadIdx.x >= S::kConsumers) {
    Loader<Copies>(work, {a, memory}).Run();
    return;
  }
  MultiplyTiles<S, kGated>(a, work, memory);
}

// Launches kernel(args..., work).
template <typename S, typename... Params, typename... Args>
cudaError_t LaunchTiles(void (*kernel)(Params...), const SkinnyGemmArgs& a, int ctas,
                        bool dependent, cudaStream_t stream, const Args&... args) {
  const int64_t token_tiles = CeilDiv(a.num_tokens, S::kTileTokens);
  const int64_t tiles = CeilDiv(a.rows, S::kTileRows) * token_tiles;
  const Work work = {.tiles = static_cast<unsigned>(tiles),
                     .token_tiles = static_cast<unsigned>(token_tiles),
                     .steps = static_cast<unsigned>(CeilDiv(a.cols, S::kStageCols))};
  constexpr size_t kBytes = sizeof(typename S::Memory);
  const cudaError_t error = AllowSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(tiles, ctas));
  return LaunchGroups({.dependent = dependent}, kernel, grid, S::kThreads, kBytes, stream, args...,
                      work);
}

template <int kRows, int kTokens, bool kGated>
cudaError_t LaunchHopper(const SkinnyGemmArgs& args, int ctas, cudaStream_t stream) {
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
  return LaunchTiles<Shape<kRows, kTokens, KernelForm::kHopper>>(
      &SkinnyGemmKernel<kRows, kTokens, kGated>, args, ctas, true, stream, weights, tokens, args);
}

template <int kRows, int kTokens, bool kGated>
cudaError_t LaunchAmpere(const SkinnyGemmArgs& args, int ctas, cudaStream_t stream) {
  if constexpr (kHasAmpereForm) {
    if (mma_tiles::FitsChunks(args.weight, args.cols) &&
        mma_tiles::FitsChunks(args.x, args.x_stride)) {
      return LaunchTiles<Shape<kRows, kTokens, KernelForm::kAmpere>>(
          &AmpereSkinnyGemmKernel<kRows, kTokens, kGated>, args, ctas, HasDependents(), stream, args);
    }
  }
  return cudaErrorInvalidValue;
}

}  // namespace

bool FitsGatedSkinnyGemm(const SkinnyGemmArgs& args) {
  return (args.activation == Activation::kSilu || args.activation == Activation::kGeluTanh) &&
         args.bias == nullptr && args.out_bf16 && args.rows % (2 * kEight) == 0;
}

cudaError_t LaunchSkinnyGemm(const SkinnyGemmArgs& args, SkinnyTile tile, int ctas, KernelForm form,
                             cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  if (args.gated && !FitsGatedSkinnyGemm(args)) return cudaErrorInvalidValue;
  return wgmma_tiles::LaunchTile<kSkinnyTiles>(tile, [&]<int kRows, int kTokens>() {
    if (form == KernelForm::kAmpere) {
      return args.gated ? LaunchAmpere<kRows, kTokens, true>(args, ctas, stream)
                        : LaunchAmpere<kRows, kTokens, false>(args, ctas, stream);
    }
    return args.gated ? LaunchHopper<kRows, kTokens, true>(args, ctas, stream)
                      : LaunchHopper<kRows, kTokens, false>(args, ctas, stream);
  });
}

}  // namespace tokamak::cuda
