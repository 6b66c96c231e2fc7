// Products of groups of rows in tiles of up to 192 tokens and 256 rows of a weight, for groups of
// many rows (grouped_gemm.h). Bound: the tensor cores.
//
// In tiles of 128 x 128, grouped_gemm.cu reached 364 TFLOP/s on an H100, for which it read 5.7 TB/s
// from the L2. Such a tile reads 256 rows for 128 x 128 sums; this one reads 448 for 192 x 256, or
// 0.58 times as much for each. Its sums fill the registers of three warpgroups, so one CTA has the
// SM.
//
// Tokens are wgmma's 64 rows, a block for each warpgroup, and rows of the weight are its N. So a
// block without tokens costs no products, and a lane has neighbouring outputs of a token. A group's
// blocks are spread over its tiles as evenly as they go.
//
// One thread requests stages of 64 columns by TMA, as in grouped_gemm.cu. It walks through the
// CTA's tiles, and leaves each for the warpgroups beside the tile's first stage. The warpgroups go
// their own ways, up to four stages apart: while one writes its outputs, the others multiply.
#include <algorithm>
#include <cstdint>

#include "base/ceil_div.h"
#include "ops/cuda/activation.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/grouped_gemm.h"
#include "ops/cuda/grouped_tiles.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/ring.cuh"
#include "ops/cuda/wgmma_tiles.cuh"

namespace tokamak::cuda {
namespace {

using wgmma_tiles::kBoxCols;
using wgmma_tiles::kRowBytes;

constexpr int kRows = kWideGroupedTile.rows;
constexpr int kTokens = kWideGroupedTile.tokens;
constexpr int kBlock = wgmma_tiles::kProductRows;  // tokens of a warpgroup
constexpr int kBlocks = kTokens / kBlock;
constexpr int kGroupThreads = 4 * kWarp;
constexpr int kConsumers = kBlocks * kGroupThreads;
constexpr int kThreads = kConsumers + kGroupThreads;  // one thread of the last warpgroup loads
// A thread's sums. Two products have 128 rows of the weight each, because ptxas refuses one of 256
// in a kernel that begins with 128 registers.
using Sums = float[2][kRows / 4];
// Registers of a thread. At launch all warpgroups have equally many, 128; then the loader's gives
// some of its own to the others.
constexpr int kLoaderRegisters = 32, kComputerRegisters = 160;
static_assert(kLoaderRegisters + kBlocks * kComputerRegisters == 4 * 128);

constexpr unsigned kStages = 4;
struct Stage {
  uint8_t weights[kRows * kRowBytes];
  uint8_t tokens[kTokens * kRowBytes];
};
constexpr int kBlockBytes = kBlock * kRowBytes;
struct alignas(SwizzleAligned) Memory {
  Stage stages[kStages];
  RingBarriers<kStages> ring;
  GroupedTile tiles[kStages];  // the tile whose first stage is in that slot
};
static_assert(sizeof(Memory) <= 227 << 10);

__device__ inline int Blocks(const GroupedTile& tile) {
  return static_cast<int>(CeilDiv(tile.end - tile.first, kBlock));
}

// Tiles are numbered by group, then by tile of the weight's rows, then by tile of the group's
// tokens. They are found in ascending order.
class TileWalk {
 public:
  __device__ TileWalk(const GroupedLinearArgs& a, unsigned row_tiles)
      : a_(a), row_tiles_(row_tiles), end_(a.offsets[0]) {}

  // Finds a tile, or group -1 behind the last.
  __device__ GroupedTile Find(unsigned index) {
    while (index >= tiles_end_) {
      if (++group_ >= a_.groups) return {.group = -1, .first = 0, .end = 0, .row_tile = 0};
      first_ = end_;
      end_ = a_.offsets[group_ + 1];
      blocks_ = CeilDiv(end_ - first_, kBlock);
      token_tiles_ = CeilDiv(blocks_, kBlocks);
      tiles_begin_ = tiles_end_;
      tiles_end_ += static_cast<unsigned>(token_tiles_) * row_tiles_;
    }
    const int in_group = static_cast<int>(index - tiles_begin_);
    const int row_tile = in_group / token_tiles_;
    // A CTA takes tiles at equal distances. The first tile of tokens has fewest blocks; in every
    // row of tiles it is at another place, so that no CTA gets only such tiles.
    const int token_tile = (in_group + row_tile + group_) % token_tiles_;
    return {.group = group_,
            .first = first_ + token_tile * blocks_ / token_tiles_ * kBlock,
            .end = min(first_ + (token_tile + 1) * blocks_ / token_tiles_ * kBlock, end_),
            .row_tile = row_tile};
  }

 private:
  const GroupedLinearArgs& a_;
  const unsigned row_tiles_;
  int group_ = -1, first_ = 0, end_;  // rows of x
  int blocks_ = 0, token_tiles_ = 0;  // of the group
  unsigned tiles_begin_ = 0, tiles_end_ = 0;
};

// Requests the stages of all of the CTA's tiles, by one thread. Behind them, a stage without bytes
// says that there are no more tiles.
__device__ void LoadTiles(const CUtensorMap* weights, const CUtensorMap* tokens,
                          const GroupedLinearArgs& a, const GroupedWork& work, Memory& memory) {
  TileWalk walk(a, work.row_tiles);
  unsigned fill = 0;
  for (unsigned i = blockIdx.x;; i += gridDim.x) {
    const GroupedTile tile = walk.Find(i);
    memory.ring.WaitUntilEmpty(fill);
    memory.tiles[memory.ring.Slot(fill)] = tile;
    if (tile.group < 0) break;
    const int blocks = Blocks(tile);
    const int first = a.one_row ? 0 : tile.first;
    for (unsigned step = 0; step < work.steps; ++step, ++fill) {
      const unsigned slot = memory.ring.Slot(fill);
      if (step > 0) memory.ring.WaitUntilEmpty(fill);
      memory.ring.Expect(fill, kRows * kRowBytes + blocks * kBlockBytes);
      const int column = static_cast<int>(step) * kBoxCols;
      Stage& stage = memory.stages[slot];
      uint64_t* const filled = &memory.ring.filled[slot];
      LoadWeightRows(stage.weights, weights, a, tile, kRows, column, filled);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        if (block >= blocks) continue;
        ptx::LoadBox(stage.tokens + block * kBlockBytes, tokens, {column, first + block * kBlock},
                     filled);
      }
    }
  }
  memory.ring.Expect(fill, 0);
}

// Multiplies all columns of a tile of which the first stage is `fill`, by a warpgroup.
__device__ void MultiplyTile(unsigned fill, unsigned steps, int first_token, Memory& memory,
                             Sums& sums) {
#pragma unroll
  for (auto& half : sums) {
#pragma unroll
    for (float& sum : half) sum = 0;
    ptx::PinRegisters(half);
  }
  for (unsigned step = 0; step < steps; ++step) {
    memory.ring.WaitUntilFilled(fill + step);
    ptx::FenceRegisters();
    const Stage& stage = memory.stages[memory.ring.Slot(fill + step)];
    const uint64_t tokens =
        ptx::DescribeTile(stage.tokens + first_token * kRowBytes, kRowBytes, 16, 1024);
    const uint64_t weights = ptx::DescribeTile(stage.weights, kRowBytes, 16, 1024);
#pragma unroll
    for (int k = 0; k < kBoxCols / wgmma_tiles::kProductCols; ++k) {
      const uint64_t at = k * wgmma_tiles::kProductCols * 2 / 16;  // in units of 16 bytes
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::WarpgroupMultiplyBf16(sums[half], tokens + at,
                                   weights + at + half * (kRows / 2 * kRowBytes / 16),
                                   step + k > 0);
      }
    }
    ptx::CommitProducts();
    // The stage before is free once its products are done; this one's may still run.
    ptx::WaitForProducts<1>();
    if (step > 0) memory.ring.ReleaseAfterProducts(fill + step - 1);
  }
  ptx::WaitForProducts<0>();
  for (auto& half : sums) ptx::PinRegisters(half);
  memory.ring.ReleaseAfterProducts(fill + steps - 1);
}

// silu of four numbers, with the bits of SiluOrGeluTanh. The compiler divides with a branch each
// time, so that four divisions follow one another. Here they overlap, by the same instructions as
// behind its branch, which round correctly between the limits.
__device__ void SiluOfFour(float (&x)[4]) {
  bool is_easy = true;
#pragma unroll
  for (const float value : x) is_easy &= fabsf(value) > 1e-18f && value > -27 && value < 1e18f;
  if (!is_easy) {
#pragma unroll
    for (float& value : x) value = SiluOrGeluTanh(/*gelu_tanh=*/false, value);
    return;
  }
#pragma unroll
  for (float& value : x) {
    const float divisor = 1.0f + expf(-value);
    float reciprocal = __fdividef(1.0f, divisor);
    reciprocal = fmaf(reciprocal, fmaf(-divisor, reciprocal, 1.0f), reciprocal);
    const float quotient = value * reciprocal;
    value = fmaf(reciprocal, fmaf(-divisor, quotient, value), quotient);
  }
}

// Writes the block of 64 tokens from `first_token` on. A lane has tokens lane / 4 and the eighth
// from there of its warp's 16, and two of every 8 rows of the weight.
template <bool kGated>
class BlockWriter {
 public:
  __device__ BlockWriter(const GroupedLinearArgs& a, const GroupedTile& tile, int first_token)
      : a_(a), lane_(static_cast<int>(threadIdx.x % kWarp)) {
    const int warp = static_cast<int>(threadIdx.x / kWarp % 4);
    const int token = first_token + warp * 16 + lane_ / 4;
    left_ = tile.end - token;
    width_ = static_cast<int>(kGated ? a.rows / 2 : a.rows);
    column_ = tile.row_tile * (kGated ? kRows / 2 : kRows);
    // The lane's four outputs of each 16 begin here (Trade).
    four_ = lane_ % 2 * 8 + lane_ / 2 % 2 * 4;
    at_ = token * a.out_stride + column_ + four_;
    bias_ = a.bias != nullptr ? a.bias + tile.group * a.rows : nullptr;
  }

  __device__ void Write(const Sums& sums) {
    constexpr int kEights = kGated ? 4 : 2;  // rows of the weight for 16 outputs
#pragma unroll
    for (int n = 0; n < kRows / (8 * kEights); ++n) {
      const int first = column_ + 16 * n;
      const auto& half = sums[kEights * n / (kRows / 16)];
      if (first >= width_) return;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float values[4], ups[4];  // two columns of each of two eights
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int sum = 4 * (kEights * n % (kRows / 16) + v / 2 * (kEights / 2)) + 2 * i + v % 2;
          values[v] = half[sum];
          if constexpr (kGated) ups[v] = half[sum + 4];
        }
        if (bias_ != nullptr) {
          AddBias(first, bias_, values);
          if constexpr (kGated) AddBias(first, bias_ + width_, ups);
        }
        if constexpr (kGated) {
#pragma unroll
          for (float& value : values) value = BF16::Load(BF16::Store(value));
          SiluOfFour(values);
#pragma unroll
          for (int v = 0; v < 4; ++v) values[v] *= BF16::Load(BF16::Store(ups[v]));
        }
        Trade(values);
        if (8 * i >= left_ || first + four_ >= width_) continue;
        const int64_t at = at_ + 8 * i * a_.out_stride + 16 * n;
        if (kGated || a_.out_bf16) {
          StoreFour<BF16, true>(values, 4, static_cast<uint16_t*>(a_.out) + at);
        } else {
          StoreFour<F32, true>(values, 4, static_cast<float*>(a_.out) + at);
        }
      }
    }
  }

 private:
  // values[v] is of column `first` + 8 (v / 2) + 2t + v % 2, with t = lane % 4.
  __device__ void AddBias(int first, const float* bias, float (&values)[4]) const {
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int column = first + v / 2 * 8 + lane_ % 4 * 2 + v % 2;
      if (column < width_) values[v] = __fadd_rn(values[v], bias[column]);
    }
  }
  // The lane trades one pair of columns with its neighbour, and then has four columns of one eight:
  // of the first if t is even.
  __device__ void Trade(float (&values)[4]) const {
    const bool is_odd = lane_ % 2 == 1;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float other = __shfl_xor_sync(kAllLanes, is_odd ? values[c] : values[2 + c], 1);
      (is_odd ? values[c] : values[2 + c]) = other;
    }
  }

  const GroupedLinearArgs& a_;
  const int lane_;
  int left_;                   // tokens of the tile from the lane's first on
  int width_, column_, four_;  // outputs of a token: all, the tile's first, the lane's first of 16
  int64_t at_;
  const float* bias_;
};

// Each warp takes the loader's word from one lane, which is also the one that frees the slot.
__device__ GroupedTile TileIn(const GroupedTile& slot) {
  GroupedTile tile = {};
  if (threadIdx.x % kWarp == 0) tile = slot;
  return {.group = __shfl_sync(kAllLanes, tile.group, 0),
          .first = __shfl_sync(kAllLanes, tile.first, 0),
          .end = __shfl_sync(kAllLanes, tile.end, 0),
          .row_tile = __shfl_sync(kAllLanes, tile.row_tile, 0)};
}

template <bool kGated>
__global__ void __launch_bounds__(kThreads, 1)
    WideGroupedGemmKernel(const __grid_constant__ CUtensorMap weights,
                          const __grid_constant__ CUtensorMap tokens,
                          const __grid_constant__ GroupedLinearArgs a, const GroupedWork work) {
  if constexpr (ptx::kIsHopper) {
    DYNAMIC_SHARED(aligned, SwizzleAligned);
    auto& memory = *reinterpret_cast<Memory*>(aligned);
    ptx::LaunchDependents();
    if (threadIdx.x == 0) memory.ring.Init(kConsumers / kWarp);
    __syncthreads();
    ptx::WaitForKernelAhead();
    // Broadcast, so that the compiler knows that no warp diverges (docs/gpu.md).
    const unsigned warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
    if (warp >= kConsumers / kWarp) {
      ptx::GiveRegistersBack<kLoaderRegisters>();
      if (threadIdx.x == kConsumers) LoadTiles(&weights, &tokens, a, work, memory);
      return;
    }
    ptx::TakeRegisters<kComputerRegisters>();
    const unsigned group = warp / 4;
    const int first_token = static_cast<int>(group) * kBlock;  // of the tile's
    Sums sums;
    for (unsigned fill = 0;; fill += work.steps) {
      memory.ring.WaitUntilFilled(fill);
      const GroupedTile tile = TileIn(memory.tiles[memory.ring.Slot(fill)]);
      if (tile.group < 0) return;
      // The warpgroups begin a stage apart, lest they all write at the same time. There always is
      // this stage: the next tile's, or the one that says that there is none.
      if (fill == 0) memory.ring.WaitUntilFilled(min(group, work.steps));
      if (tile.first + first_token >= tile.end) {
        for (unsigned step = 0; step < work.steps; ++step) {
          memory.ring.WaitUntilFilled(fill + step);
          __syncwarp();  // else lanes might miss this phase, and wait for the one after the next
          memory.ring.ReleaseAfterProducts(fill + step);
        }
        continue;
      }
      MultiplyTile(fill, work.steps, first_token, memory, sums);
      BlockWriter<kGated>(a, tile, tile.first + first_token).Write(sums);
    }
  }
}

}  // namespace

bool FitsWideGroupedGemm(const GroupedLinearArgs& args) {
  return FitsGroupedGemm(args) && args.rows % 8 == 0 &&
         FitsFours(args.out, args.out_stride, args.out_bf16 ? 2 : 4);
}

cudaError_t LaunchWideGroupedGemm(const GroupedLinearArgs& args, int ctas, cudaStream_t stream) {
  if (!FitsWideGroupedGemm(args)) return cudaErrorInvalidValue;
  const auto kernel = args.gated ? &WideGroupedGemmKernel<true> : &WideGroupedGemmKernel<false>;
  return LaunchOnTiles(kernel, args, kWideGroupedTile,
                       {.box_tokens = kBlock,
                        .stage_cols = kBoxCols,
                        .threads = kThreads,
                        .shared_bytes = sizeof(Memory)},
                       ctas, stream);
}

}  // namespace tokamak::cuda
