// HeadLinear: out[t, h] = [copied[t, h] | W_h · x[t, h]]. x and copied f32 or bf16, columns of
// [T, ...] as HeadLinearArgs says; W [heads, rows, cols] bf16 or f32; out f32 or bf16
// [T, heads · (copied.cols + rows)].
//
// The plain kernel takes any shape, a tile of a head at a time (plain_tile.cuh).
//
// The kernel on tensor cores: a CTA has 64 rows of a head's weight and up to 16 or 64 tokens, all
// with all columns in shared memory. It requests the weight before it waits for the kernel ahead.
// The CTAs of a head and its tokens divide the columns to copy among them.
// Each of its four warps multiplies 16 rows of the weight with all of its tokens by mma.sync, with
// tokens as rows, so that a token's sums do not depend on how many there are. Bound: the bytes of
// the weight for few tokens (16.8 MB for 128 heads of DeepSeek-V3), those of x and out for many.
#include <type_traits>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/plain_tile.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/shared_bytes.h"

namespace tokamak::cuda {
namespace {

using Columns = HeadLinearArgs::Columns;

// Two neighbouring elements in memory, moved by one instruction.
template <typename Storage>
struct alignas(2 * sizeof(Storage)) Two {
  Storage low, high;
};

template <typename Element>
__device__ const typename Element::Storage* HeadOf(const Columns& x, int64_t token, int64_t head) {
  return static_cast<const typename Element::Storage*>(x.data) + token * x.stride + x.first +
         head * x.step;
}
template <typename Out>
__device__ typename Out::Storage* OutputOf(const HeadLinearArgs& a, int64_t token, int64_t head) {
  return static_cast<typename Out::Storage*>(a.out) + token * a.out_stride + head * a.out_cols();
}

// Copies the columns of tokens part, part + parts, ... below `count` after `first`, four at a time,
// by the CTA's kThreads threads.
template <typename In, typename Out, bool kVectors, int kThreads>
__device__ void CopyFours(const HeadLinearArgs& a, int64_t head, int64_t first, int count, int part,
                          int parts) {
  const int cols = static_cast<int>(a.copied.cols), fours = CeilDiv(cols, 4);
  for (int i = static_cast<int>(threadIdx.x);; i += kThreads) {
    const int token = part + i / fours * parts, d = i % fours * 4;
    if (token >= count) return;
    float values[4];
    LoadFour<In, kVectors>(HeadOf<In>(a.copied, first + token, head) + d, cols - d, values);
    StoreFour<Out, kVectors>(values, cols - d, OutputOf<Out>(a, first + token, head) + d);
  }
}

// Copies this CTA's share of the columns of `count` tokens, which neighbours along x divide among
// them. kVectors: see Vectors.
template <typename Out, bool kVectors, int kThreads>
__device__ void CopyColumns(const HeadLinearArgs& a, int64_t head, int64_t first, int count) {
  if (a.copied.cols == 0) return;
  const int part = static_cast<int>(blockIdx.x), parts = static_cast<int>(gridDim.x);
  if (a.copied.bf16) {
    CopyFours<BF16, Out, kVectors, kThreads>(a, head, first, count, part, parts);
  } else {
    CopyFours<F32, Out, kVectors, kThreads>(a, head, first, count, part, parts);
  }
}

template <typename X, typename Weight, typename Out>
__global__ void __launch_bounds__(plain::kThreads)
    PlainHeadLinearKernel(const __grid_constant__ HeadLinearArgs a) {
  const int64_t first_row = blockIdx.x * int64_t{plain::kTile};  // of w
  const int64_t first_token = blockIdx.y * int64_t{plain::kTile};
  const int64_t head = blockIdx.z, cols = a.x.cols;
  const int count = static_cast<int>(min(int64_t{plain::kTile}, a.num_tokens - first_token));
  const auto* const weight =
      static_cast<const typename Weight::Storage*>(a.weights) + (head * a.rows + first_row) * cols;
  CopyColumns<Out, false, plain::kThreads>(a, head, first_token, count);
  float sums[plain::kOutputs];
  plain::Multiply<X, Weight>([&](int i) { return HeadOf<X>(a.x, first_token + i, head); }, count,
                             [&](int i) { return weight + i * cols; }, a.rows - first_row, cols,
                             sums);
  const int64_t row = first_row + plain::Column();
  if (row >= a.rows) return;
#pragma unroll
  for (int j = 0; j < plain::kOutputs; ++j) {
    if (plain::Token(j) >= count) continue;
    OutputOf<Out>(a, first_token + plain::Token(j), head)[a.copied.cols + row] =
        Out::Store(sums[j]);
  }
}

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRows = 64;  // of a weight, in a CTA
constexpr int kStep = 16;  // columns of a product
constexpr int kMaxCols = 512;
constexpr int kFewTokens = 16;
constexpr int kManyTokens = 64;

// Elements of a row of x or of a weight in shared memory. An odd number of 16 bytes, so that
// ldmatrix meets no bank twice.
constexpr int RowElements(int64_t cols) { return static_cast<int>(cols) + 8; }

// Parts of a product that can be moved by vectors.
struct Vectors {
  bool x_eights;      // 16 bytes of x in bf16
  bool copied_fours;  // four copied columns
};

// Rounds the tile's tokens to bf16; a warp has every kWarps-th. Rows of tokens that do not exist
// are left as they are: their sums are not written. The caller waits for copies.
template <typename X, int kTokens>
__device__ void LoadTokens(const HeadLinearArgs& a, bool eights, int64_t head, int64_t first,
                           int count, uint16_t* to) {
  constexpr int kAhead = kTokens / kWarps < 8 ? kTokens / kWarps : 8;
  const int cols = static_cast<int>(a.x.cols), stride = RowElements(cols);
  const int warp = static_cast<int>(threadIdx.x / kWarp),
            lane = static_cast<int>(threadIdx.x % kWarp);
  if (std::is_same_v<X, BF16> && eights) {
    for (int token = warp; token < count; token += kWarps) {
      const auto* const from = HeadOf<X>(a.x, first + token, head);
      for (int d = lane * 8; d < cols; d += kWarp * 8) {
        ptx::CopyAsync16(to + token * stride + d, from + d);
      }
    }
    return;
  }
  for (int d = lane * 4; d < cols; d += kWarp * 4) {
    for (int begin = warp; begin < count; begin += kAhead * kWarps) {
      float values[kAhead][4];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int token = begin + u * kWarps;
        if (token < count) LoadFour<X, true>(HeadOf<X>(a.x, first + token, head) + d, 4, values[u]);
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int token = begin + u * kWarps;
        if (token < count) StoreFour<BF16, true>(values[u], 4, to + token * stride + d);
      }
    }
  }
}

template <typename X, typename Out, int kTokens>
__global__ void __launch_bounds__(kThreads, 4)
    MmaHeadLinearKernel(const __grid_constant__ HeadLinearArgs a, const Vectors vectors) {
  constexpr int kTiles = kTokens / 16;  // of 16 tokens
  DYNAMIC_SHARED(shared, uint4);
  const int cols = static_cast<int>(a.x.cols), stride = RowElements(cols);
  auto* const weights = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const x = weights + kRows * stride;
  const int64_t head = blockIdx.y;
  const int64_t first_row = blockIdx.x * int64_t{kRows};
  const int64_t first_token = blockIdx.z * int64_t{kTokens};
  const int count = static_cast<int>(min(int64_t{kTokens}, a.num_tokens - first_token));
  ptx::LaunchDependents();
  const auto* from = static_cast<const uint16_t*>(a.weights) + (head * a.rows + first_row) * cols;
  const int chunks = cols / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * chunks; i += kThreads) {
    const int row = i / chunks, chunk = i % chunks;
    const bool exists = first_row + row < a.rows;
    ptx::CopyAsync16(weights + row * stride + chunk * 8,
                     from + (exists ? row * cols + chunk * 8 : 0), exists ? 16 : 0);
  }
  ptx::CommitCopies();
  ptx::WaitForKernelAhead();
  LoadTokens<X, kTokens>(a, vectors.x_eights, head, first_token, count, x);
  ptx::CommitCopies();
  if (vectors.copied_fours) {
    CopyColumns<Out, true, kThreads>(a, head, first_token, count);
  } else {
    CopyColumns<Out, false, kThreads>(a, head, first_token, count);
  }
  ptx::WaitForCopies<0>();
  __syncthreads();

  const int warp = static_cast<int>(threadIdx.x / kWarp),
            lane = static_cast<int>(threadIdx.x % kWarp);
  const int matrix = lane / 8;
  // Matrices 0 and 1 of the tokens have the rows of the first half of k. Those of the weight have
  // the halves of k of the first 8 rows.
  const uint16_t* const x_row = x + (matrix % 2 * 8 + lane % 8) * stride + matrix / 2 * 8;
  const uint16_t* const w_row =
      weights + (warp * 16 + matrix / 2 * 8 + lane % 8) * stride + matrix % 2 * 8;
  float sums[kTiles][2][4] = {};
#pragma unroll 2
  for (int k = 0; k < cols; k += kStep) {
    uint32_t b[4];
    ptx::LoadMatrices(b, w_row + k);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t fragments[4];
      ptx::LoadMatrices(fragments, x_row + tile * 16 * stride + k);
      ptx::MultiplyBf16(sums[tile][0], fragments, {b[0], b[1]});
      ptx::MultiplyBf16(sums[tile][1], fragments, {b[2], b[3]});
    }
  }
  const int64_t row = first_row + warp * 16 + lane % 4 * 2;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = tile * 16 + i * 8 + lane / 4;
      if (token >= count) continue;
      auto* const out = OutputOf<Out>(a, first_token + token, head) + a.copied.cols;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (row + j * 8 >= a.rows) continue;
        const typename Out::Storage low = Out::Store(sums[tile][j][2 * i]);
        const typename Out::Storage high = Out::Store(sums[tile][j][2 * i + 1]);
        const Two<typename Out::Storage> pair = {low, high};
        *reinterpret_cast<Two<typename Out::Storage>*>(out + row + j * 8) = pair;
      }
    }
  }
}

// launch<F32 or BF16>() by a flag.
template <typename Launch>
cudaError_t LaunchOf(bool bf16, const Launch& launch) {
  return bf16 ? launch.template operator()<BF16>() : launch.template operator()<F32>();
}

// Whether the first of the columns, and their rows and heads, are aligned as `elements` are.
bool FitsVectors(const Columns& x, int64_t elements) {
  const auto bytes = static_cast<int64_t>(ElementBytes(x.bf16));
  const auto address =
      reinterpret_cast<uintptr_t>(x.data) + static_cast<uintptr_t>(x.first * bytes);
  return address % static_cast<uintptr_t>(elements * bytes) == 0 && x.stride % elements == 0 &&
         x.step % elements == 0;
}

Vectors VectorsOf(const HeadLinearArgs& args) {
  return {.x_eights = args.x.bf16 && args.x.cols % 8 == 0 && FitsVectors(args.x, 8),
          .copied_fours = args.copied.cols % 4 == 0 && FitsVectors(args.copied, 4) &&
                          args.out_cols() % 4 == 0 &&
                          FitsFours(args.out, args.out_stride, ElementBytes(args.out_bf16))};
}

size_t SharedBytes(const HeadLinearArgs& args, int tokens) {
  return static_cast<size_t>((kRows + tokens) * RowElements(args.x.cols)) * sizeof(uint16_t);
}

template <typename X, typename Out, int kTokens>
cudaError_t LaunchTokens(const HeadLinearArgs& args, cudaStream_t stream) {
  const size_t bytes = SharedBytes(args, kTokens);
  const auto kernel = &MmaHeadLinearKernel<X, Out, kTokens>;
  const cudaError_t error = AllowSharedMemory(kernel, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(Grid(args.rows, kRows), static_cast<unsigned>(args.num_heads),
                  Grid(args.num_tokens, kTokens));
  return LaunchGroups({.dependent = HasDependents()}, kernel, grid, kThreads, bytes, stream, args,
                      VectorsOf(args));
}

}  // namespace

cudaError_t LaunchPlainHeadLinear(const HeadLinearArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.num_heads * args.rows == 0) return cudaSuccess;
  const dim3 grid(Grid(args.rows, plain::kTile), Grid(args.num_tokens, plain::kTile),
                  static_cast<unsigned>(args.num_heads));
  if (!args.weights_bf16) {
    if (args.x.bf16 || args.out_bf16) return cudaErrorInvalidValue;
    return LaunchKernel(&PlainHeadLinearKernel<F32, F32, F32>, grid, plain::kThreads, 0, stream,
                        args);
  }
  return LaunchOf(args.x.bf16, [&]<typename X>() {
    return LaunchOf(args.out_bf16, [&]<typename Out>() {
      return LaunchKernel(&PlainHeadLinearKernel<X, BF16, Out>, grid, plain::kThreads, 0, stream,
                          args);
    });
  });
}

bool HasMmaHeadLinear(const HeadLinearArgs& args) {
  const size_t element = ElementBytes(args.x.bf16);
  const auto* first =
      static_cast<const std::byte*>(args.x.data) + args.x.first * static_cast<int64_t>(element);
  return args.weights_bf16 && args.x.cols % kStep == 0 && args.x.cols <= kMaxCols &&
         args.rows % 8 == 0 && args.x.step % 4 == 0 && FitsFours(first, args.x.stride, element) &&
         reinterpret_cast<uintptr_t>(args.weights) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.out) % (2 * ElementBytes(args.out_bf16)) == 0 &&
         args.copied.cols % 2 == 0 && args.out_stride % 2 == 0;
}

cudaError_t LaunchMmaHeadLinear(const HeadLinearArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.num_heads * args.rows == 0) return cudaSuccess;
  constexpr int64_t kEnoughCtas = 128;  // so many that most SMs of a Hopper have one
  const int64_t ctas = CeilDiv(args.rows, int64_t{kRows}) * args.num_heads *
                       CeilDiv(args.num_tokens, int64_t{kManyTokens});
  const bool few = args.num_tokens <= kFewTokens || ctas < kEnoughCtas ||
                   SharedBytes(args, kManyTokens) > static_cast<size_t>(MaxSharedBytes());
  return LaunchOf(args.x.bf16, [&]<typename X>() {
    return LaunchOf(args.out_bf16, [&]<typename Out>() {
      return few ? LaunchTokens<X, Out, kFewTokens>(args, stream)
                 : LaunchTokens<X, Out, kManyTokens>(args, stream);
    });
  });
}

}  // namespace tokamak::cuda
