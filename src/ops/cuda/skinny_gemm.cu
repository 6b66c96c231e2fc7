// Products of few tokens (skinny_gemm.h). Reads the weight once for every 64 tokens (16, with four
// chunks): bound by those bytes.
//
// wgmma's 64 rows are rows of the weight, and its N the tokens, 8 to 64. A CTA takes tiles of 64
// weight rows, each with all its columns. One warp requests stages of 64 columns by TMA: 64 weight
// rows and the tokens of the tile, in rows of 128 swizzled bytes. A warpgroup per chunk of K
// multiplies them, so that stages alternate between chunks, and the first warpgroup adds the
// others' sums to its own. Rows, columns and tokens beyond the tensors' ends arrive as zeros, which
// add nothing.
//
// Shared memory is at most 110 KB, and 32K registers serve a CTA, so that the next kernel's CTAs
// find room beside this one's. They are released at once, and request their weights while this one
// runs.
#include "ops/cuda/skinny_gemm.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda {
namespace {

constexpr int kTileRows = 64;
constexpr int kStageCols = 64;
constexpr int kRowBytes = 128;  // of a stage: what a swizzle spans
constexpr int kProductCols = 16;
constexpr int kWarpgroup = 4 * kWarp;
constexpr int kSharedBytes = 110 << 10;

template <int kTokens, int kChunks>
struct Shape {
  static constexpr int kConsumers = kChunks * kWarpgroup;
  static constexpr int kThreads = kConsumers + kWarp;
  static constexpr int kSums = kTokens / 2;  // of a thread
  static constexpr int kWeightBytes = kTileRows * kRowBytes;
  static constexpr int kTokenBytes = kTokens * kRowBytes;
  static constexpr int kPartials = (kChunks - 1) * kSums * kWarpgroup;
  // Each slot belongs to one chunk: a warpgroup that is a whole round ahead of the one that had the
  // slot before it could not tell their phases apart.
  static constexpr int kStages =
      (kSharedBytes - kPartials * 4 - static_cast<int>(sizeof(SwizzleAligned))) /
      (kWeightBytes + kTokenBytes) / kChunks * kChunks;
  // A warpgroup keeps a slot until its products of the next are under way.
  static_assert(kStages >= 2 * kChunks);

  struct alignas(SwizzleAligned) Memory {
    uint8_t weights[kStages][kWeightBytes];
    uint8_t tokens[kStages][kTokenBytes];
    float partials[kPartials > 0 ? kPartials : 1];  // [kChunks - 1, kSums, kWarpgroup]
    RingBarriers<kStages> ring;
  };
  static_assert(sizeof(Memory) <= kSharedBytes);
};

// How a launch is cut. CTA i takes tiles i, i + ctas, ...
struct Work {
  unsigned tiles;
  unsigned token_tiles;  // of the same rows, one after the other
  unsigned steps;        // stages of a chunk
};

// What the warp that loads does. Fill number i is step i / kChunks of chunk i % kChunks, counted
// through the CTA's tiles.
template <int kTokens, int kChunks>
class Loader {
 public:
  using S = Shape<kTokens, kChunks>;

  __device__ Loader(const CUtensorMap* weights, const CUtensorMap* tokens, const Work& work,
                    typename S::Memory& memory)
      : weights_(weights), tokens_(tokens), work_(work), memory_(memory) {}

  // Weights do not depend on the kernel ahead.
  __device__ void Run() {
    const unsigned tiles = (work_.tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
    const unsigned fills = tiles * work_.steps * kChunks;
    const unsigned early = min(fills, static_cast<unsigned>(S::kStages));
    for (unsigned i = 0; i < early; ++i) LoadWeights(i);
    ptx::WaitForKernelAhead();
    for (unsigned i = 0; i < early; ++i) LoadTokens(i);
    for (unsigned i = early; i < fills; ++i) {
      memory_.ring.WaitUntilEmpty(i);
      LoadWeights(i);
      LoadTokens(i);
    }
  }

 private:
  __device__ unsigned TileOf(unsigned fill) const {
    return blockIdx.x + fill / (work_.steps * kChunks) * gridDim.x;
  }
  __device__ int ColumnOf(unsigned fill) const {
    const unsigned in_tile = fill % (work_.steps * kChunks);
    return static_cast<int>((in_tile % kChunks * work_.steps + in_tile / kChunks) * kStageCols);
  }
  __device__ void LoadWeights(unsigned fill) {
    const unsigned slot = memory_.ring.Slot(fill);
    const auto row = static_cast<int>(TileOf(fill) / work_.token_tiles * kTileRows);
    memory_.ring.Expect(fill, S::kWeightBytes + S::kTokenBytes);
    ptx::LoadBox(memory_.weights[slot], weights_, {ColumnOf(fill), row},
                 &memory_.ring.filled[slot]);
  }
  __device__ void LoadTokens(unsigned fill) {
    const unsigned slot = memory_.ring.Slot(fill);
    const auto token = static_cast<int>(TileOf(fill) % work_.token_tiles * kTokens);
    ptx::LoadBox(memory_.tokens[slot], tokens_, {ColumnOf(fill), token},
                 &memory_.ring.filled[slot]);
  }

  const CUtensorMap* weights_;
  const CUtensorMap* tokens_;
  const Work& work_;
  typename S::Memory& memory_;
};

// One chunk of the CTA's tile number `tile`, by a warpgroup.
template <int kTokens, int kChunks>
__device__ void MultiplyChunk(unsigned tile, unsigned chunk, unsigned steps,
                              typename Shape<kTokens, kChunks>::Memory& memory,
                              float (&sums)[kTokens / 2]) {
  const auto fill_of = [&](unsigned step) { return (tile * steps + step) * kChunks + chunk; };
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
  ptx::PinRegisters(sums);
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned fill = fill_of(step);
    const unsigned slot = memory.ring.Slot(fill);
    memory.ring.WaitUntilFilled(fill);
    const uint8_t* const weights = memory.weights[slot];
    const uint8_t* const tokens = memory.tokens[slot];
    ptx::FenceRegisters();
#pragma unroll
    for (int k = 0; k < kStageCols / kProductCols; ++k) {
      const int at = k * kProductCols * 2;
      ptx::WarpgroupMultiplyBf16(sums, ptx::DescribeTile(weights + at, kRowBytes, 16, 1024),
                                 ptx::DescribeTile(tokens + at, kRowBytes, 16, 1024),
                                 step > 0 || k > 0);
    }
    ptx::CommitProducts();
    // The stage before is free once its products are done; this one's may still run.
    ptx::WaitForProducts<1>();
    if (step > 0) memory.ring.ReleaseAfterProducts(fill_of(step - 1));
  }
  ptx::WaitForProducts<0>();
  ptx::PinRegisters(sums);
  memory.ring.ReleaseAfterProducts(fill_of(steps - 1));
}

// Adds the other chunks' sums, ascending, to those of the first warpgroup.
template <int kTokens, int kChunks>
__device__ void AddChunks(unsigned chunk, typename Shape<kTokens, kChunks>::Memory& memory,
                          float (&sums)[kTokens / 2]) {
  if constexpr (kChunks > 1) {
    using S = Shape<kTokens, kChunks>;
    const auto partial = [&](unsigned of, int i) -> float& {
      return memory.partials[((of - 1) * S::kSums + static_cast<unsigned>(i)) * kWarpgroup +
                             threadIdx.x % kWarpgroup];
    };
    if (chunk > 0) {
#pragma unroll
      for (int i = 0; i < S::kSums; ++i) partial(chunk, i) = sums[i];
    }
    ptx::SyncNamed(1, S::kConsumers);
    if (chunk == 0) {
#pragma unroll
      for (unsigned other = 1; other < kChunks; ++other) {
#pragma unroll
        for (int i = 0; i < S::kSums; ++i) sums[i] = __fadd_rn(sums[i], partial(other, i));
      }
    }
    ptx::SyncNamed(1, S::kConsumers);  // they have been read
  }
}

// A lane has two tokens and two rows of every 8 tokens and 16 rows.
template <int kTokens>
__device__ void WriteTile(const SkinnyGemmArgs& a, unsigned row_tile, unsigned token_tile,
                          const float (&sums)[kTokens / 2]) {
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = row_tile * int64_t{kTileRows} + warp * 16 + lane / 4 + i * 8;
    if (row >= a.rows) continue;
    const float bias = a.bias != nullptr ? a.bias[row] : 0.0f;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int64_t token = token_tile * int64_t{kTokens} + j * 8 + lane % 4 * 2 + c;
        if (token >= a.num_tokens) continue;
        float value = sums[4 * j + 2 * i + c];
        if (a.bias != nullptr) value = __fadd_rn(value, bias);
        const int64_t at = token * a.out_stride + row;
        if (a.out_bf16) {
          static_cast<uint16_t*>(a.out)[at] = BF16::Store(value);
        } else {
          static_cast<float*>(a.out)[at] = value;
        }
      }
    }
  }
}

template <int kTokens, int kChunks>
__global__ void __launch_bounds__(Shape<kTokens, kChunks>::kThreads, 2)
    SkinnyGemmKernel(const __grid_constant__ CUtensorMap weights,
                     const __grid_constant__ CUtensorMap tokens,
                     const __grid_constant__ SkinnyGemmArgs a, const Work work) {
  if constexpr (ptx::kIsHopper) {
    using S = Shape<kTokens, kChunks>;
    DYNAMIC_SHARED(aligned, SwizzleAligned);
    auto& memory = *reinterpret_cast<typename S::Memory*>(aligned);
    ptx::LaunchDependents();
    if (threadIdx.x == 0) memory.ring.Init(4);
    __syncthreads();
    if (threadIdx.x >= S::kConsumers) {
      if (threadIdx.x == S::kConsumers) {
        Loader<kTokens, kChunks>(&weights, &tokens, work, memory).Run();
      }
      return;
    }
    const unsigned chunk = threadIdx.x / kWarpgroup;
    float sums[S::kSums];
    unsigned count = 0;
    for (unsigned tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
      MultiplyChunk<kTokens, kChunks>(count++, chunk, work.steps, memory, sums);
      AddChunks<kTokens, kChunks>(chunk, memory, sums);
      if (chunk == 0) {
        WriteTile<kTokens>(a, tile / work.token_tiles, tile % work.token_tiles, sums);
      }
    }
  }
}

// [rows, cols] in boxes of `box_rows` rows and a stage's columns.
CUresult MapMatrix(const void* data, int64_t rows, int64_t cols, int64_t stride, int box_rows,
                   CUtensorMap* map) {
  return MakeTensorMap({.data = const_cast<void*>(data),
                        .element_bytes = 2,
                        .sizes = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                        .strides = {static_cast<uint64_t>(stride) * 2},
                        .box = {kStageCols, static_cast<uint32_t>(box_rows)},
                        .swizzle = kRowBytes},
                       map);
}

template <int kTokens, int kChunks>
cudaError_t Launch(const SkinnyGemmArgs& args, int ctas, cudaStream_t stream) {
  using S = Shape<kTokens, kChunks>;
  CUtensorMap weights;
  CUtensorMap tokens;
  if (MapMatrix(args.weight, args.rows, args.cols, args.cols, kTileRows, &weights) !=
          CUDA_SUCCESS ||
      MapMatrix(args.x, args.num_tokens, args.cols, args.x_stride, kTokens, &tokens) !=
          CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  const int64_t token_tiles = CeilDiv(args.num_tokens, kTokens);
  const int64_t tiles = CeilDiv(args.rows, kTileRows) * token_tiles;
  const int64_t steps = CeilDiv(CeilDiv(args.cols, kStageCols), kChunks);
  const Work work = {.tiles = static_cast<unsigned>(tiles),
                     .token_tiles = static_cast<unsigned>(token_tiles),
                     .steps = static_cast<unsigned>(steps)};
  const auto kernel = &SkinnyGemmKernel<kTokens, kChunks>;
  constexpr size_t kBytes = sizeof(typename S::Memory);
  const cudaError_t error = AllowSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(tiles, ctas));
  return LaunchGroups({.dependent = true}, kernel, grid, S::kThreads, kBytes, stream, weights,
                      tokens, args, work);
}

template <int kChunks>
cudaError_t LaunchChunks(const SkinnyGemmArgs& args, int ctas, cudaStream_t stream) {
  if (args.num_tokens <= 8) return Launch<8, kChunks>(args, ctas, stream);
  if constexpr (kChunks < 4) {  // whose partial sums leave no room for more tokens
    if (args.num_tokens > 32) return Launch<64, kChunks>(args, ctas, stream);
    if (args.num_tokens > 16) return Launch<32, kChunks>(args, ctas, stream);
  }
  return Launch<16, kChunks>(args, ctas, stream);
}

}  // namespace

cudaError_t LaunchSkinnyGemm(const SkinnyGemmArgs& args, int ctas, cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  switch (args.chunks) {
    case 1:
      return LaunchChunks<1>(args, ctas, stream);
    case 2:
      return LaunchChunks<2>(args, ctas, stream);
    case 4:
      return LaunchChunks<4>(args, ctas, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tokamak::cuda
