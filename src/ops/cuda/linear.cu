// The plain GEMM, and what goes around cuBLASLt's.
//
// out[m, n] = Σ_k x[m, k] · w[n, k]. x [M, K] and w [N, K] both bf16 or both f32, out [M, N] f32 or
// bf16.
// Used for all products in f32, and in bf16 where cuBLASLt has nothing for an alignment; 2·M·N·K
// FLOPs on the plain FP32 units, so it is slow for all but small shapes. A CTA makes a tile
// (plain_tile.cuh): one chain over ascending k per output, whatever M is.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/plain_tile.cuh"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = plain::kThreads;  // of all kernels here

template <typename Element, typename Out>
__global__ void __launch_bounds__(plain::kThreads) PlainLinearKernel(PlainLinearArgs a) {
  const int64_t first_row = blockIdx.x * int64_t{plain::kTile};  // of w
  const int64_t first_token = blockIdx.y * int64_t{plain::kTile};
  const auto* const x = static_cast<const typename Element::Storage*>(a.x);
  const auto* const w = static_cast<const typename Element::Storage*>(a.weight);
  float sums[plain::kOutputs];
  plain::Multiply<Element, Element>(
      [&](int i) { return x + (first_token + i) * a.x_stride; }, a.num_tokens - first_token,
      [&](int i) { return w + (first_row + i) * a.cols; }, a.rows - first_row, a.cols, sums);
  const int64_t n = first_row + plain::Column();
  if (n >= a.rows) return;
  auto* out = static_cast<typename Out::Storage*>(a.out);
#pragma unroll
  for (int j = 0; j < plain::kOutputs; ++j) {
    const int64_t m = first_token + plain::Token(j);
    if (m < a.num_tokens) out[m * a.out_stride + n] = Out::Store(sums[j]);
  }
}

__global__ void AddBiasKernel(BiasArgs a) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= a.num_tokens * a.rows) return;
  a.out[i / a.rows * a.out_stride + i % a.rows] += a.bias[i % a.rows];
}

__global__ void FillProbeKernel(FillProbeArgs a) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= a.num_tokens * a.cols) return;
  const int64_t token = i / a.cols, k = i % a.cols, pair = a.cols - 1 - k;
  const uint64_t bits = (static_cast<uint64_t>(min(k, pair)) + 1) * 0x9e3779b97f4a7c15;
  const auto scale = static_cast<float>(1 << (bits >> 60));
  const float value = BF16::Load(a.weight[token % a.rows * a.cols + pair]) * scale;
  a.x[i] = BF16::Store(k < pair ? value : k > pair ? -value : 0.0f);
}

template <typename Element>
__global__ void CountDifferentKernel(CountDifferentArgs args) {
  const auto* a = static_cast<const typename Element::Storage*>(args.a);
  const auto* b = static_cast<const typename Element::Storage*>(args.b);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  int32_t mine = 0;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < args.count; i += stride) {
    const float x = Element::Load(a[i]), y = Element::Load(b[i]);
    const bool both_nan = x != x && y != y;
    mine += static_cast<int32_t>(!both_nan && __float_as_uint(x) != __float_as_uint(y));
  }
  if (mine != 0) atomicAdd(args.different, mine);
}

}  // namespace

cudaError_t LaunchPlainLinear(const PlainLinearArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  const dim3 grid(Grid(args.rows, plain::kTile), Grid(args.num_tokens, plain::kTile));
  const auto kernel = !args.bf16      ? &PlainLinearKernel<F32, F32>
                      : args.out_bf16 ? &PlainLinearKernel<BF16, BF16>
                                      : &PlainLinearKernel<BF16, F32>;
  return LaunchKernel(kernel, grid, kThreads, 0, stream, args);
}

cudaError_t LaunchAddBias(const BiasArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.rows == 0) return cudaSuccess;
  return LaunchKernel(AddBiasKernel, Grid(args.num_tokens * args.rows, kThreads), kThreads, 0,
                      stream, args);
}

cudaError_t LaunchFillProbe(const FillProbeArgs& args, cudaStream_t stream) {
  const int64_t count = args.rows == 0 ? 0 : args.num_tokens * args.cols;
  if (count == 0) return cudaSuccess;
  return LaunchKernel(FillProbeKernel, Grid(count, kThreads), kThreads, 0, stream, args);
}

cudaError_t LaunchCountDifferent(const CountDifferentArgs& args, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  constexpr unsigned kCtas = 264;
  const auto kernel = args.bf16 ? &CountDifferentKernel<BF16> : &CountDifferentKernel<F32>;
  return LaunchKernel(kernel, kCtas, kThreads, 0, stream, args);
}

}  // namespace tokamak::cuda
