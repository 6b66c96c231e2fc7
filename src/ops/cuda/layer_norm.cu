// AddLayerNorm: residual += x; out = (residual - mean) / sqrt(variance + eps) · weight + bias. x
// f32 or bf16 [T, cols], residual f32 [T, cols], weight and bias f32 [cols], out f32 or bf16 [T,
// cols]. Bound by memory: reads and writes each once (the residual is read three times, but twice
// from the cache).
//
// The variance is computed from differences to the mean, so that a mean far from 0 cancels nothing.
// A token is one CTA. A thread has the same elements in every pass, so `out` may be the residual,
// and the row's length alone decides the order of the sums. A dependent.
#include <algorithm>

#include "base/ceil_div.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr int kMaxThreads = 1024;

template <typename X, typename Out, bool kVectors>
__global__ void __launch_bounds__(kMaxThreads) AddLayerNormKernel(const LayerNormArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  float* residual = a.residual + t * a.residual_stride;
  auto* out = static_cast<typename Out::Storage*>(a.out) + t * a.out_stride;
  const auto* x = static_cast<const typename X::Storage*>(a.x);
  if (x != nullptr) x += t * a.x_stride;
  const int64_t first = int64_t{threadIdx.x} * 4;
  const int64_t step = int64_t{blockDim.x} * 4;
  const auto cols = static_cast<float>(a.cols);
  float values[4], other[4];

  float sum = 0;
  for (int64_t i = first; i < a.cols; i += step) {
    LoadFour<F32, kVectors>(residual + i, a.cols - i, values);
    if (x != nullptr) {
      LoadFour<X, kVectors>(x + i, a.cols - i, other);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] += other[j];
      StoreFour<F32, kVectors>(values, a.cols - i, residual + i);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) sum += values[j];  // those beyond the row are 0
  }
  const float mean = BlockSum(sum) / cols;
  __syncthreads();  // all have read BlockSum's memory

  float squares = 0;
  for (int64_t i = first; i < a.cols; i += step) {
    LoadFour<F32, kVectors>(residual + i, a.cols - i, values);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float difference = i + j < a.cols ? values[j] - mean : 0.0f;
      squares = fmaf(difference, difference, squares);
    }
  }
  const float scale = 1.0f / sqrtf(BlockSum(squares) / cols + a.eps);

  for (int64_t i = first; i < a.cols; i += step) {
    float bias[4] = {};
    LoadFour<F32, kVectors>(residual + i, a.cols - i, values);
    LoadFour<F32, kVectors>(a.weight + i, a.cols - i, other);
    if (a.bias != nullptr) LoadFour<F32, kVectors>(a.bias + i, a.cols - i, bias);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = fmaf((values[j] - mean) * scale, other[j], bias[j]);
    StoreFour<Out, kVectors>(values, a.cols - i, out + i);
  }
}

}  // namespace

cudaError_t LaunchAddLayerNorm(const LayerNormArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.cols == 0) return cudaSuccess;
  const bool vectors =
      (args.x == nullptr || FitsFours(args.x, args.x_stride, ElementBytes(args.x_bf16))) &&
      FitsFours(args.residual, args.residual_stride, sizeof(float)) &&
      FitsFours(args.weight, args.cols, sizeof(float)) &&
      (args.bias == nullptr || FitsFours(args.bias, args.cols, sizeof(float))) &&
      FitsFours(args.out, args.out_stride, ElementBytes(args.out_bf16));
  const int64_t warps = CeilDiv(CeilDiv(args.cols, int64_t{4}), int64_t{kWarp});
  const auto threads = static_cast<unsigned>(std::min<int64_t>(kMaxThreads, warps * kWarp));
  return LaunchAs(args.x_bf16, args.out_bf16, vectors,
                  [&]<typename X, typename Out, bool kVectors>() {
                    return LaunchDependent(&AddLayerNormKernel<X, Out, kVectors>,
                                           Grid(args.num_tokens, 1), threads, stream, args);
                  });
}

}  // namespace tokamak::cuda
