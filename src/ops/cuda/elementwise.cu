// Embed, AddRmsNorm, GatedActivation, GatherRows, ScatterElements, CopyRanges. All are bound by
// memory: each reads its inputs and writes its outputs once (AddRmsNorm reads the residual twice,
// the second time from the cache), f32 or bf16, rows contiguous inside, neighbouring threads on
// neighbouring elements.
//
// Batch invariance: a token is one CTA (or its elements are one thread each), cut by the row's
// length alone.
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;

unsigned Grid(int64_t items, int64_t per_cta) {
  return static_cast<unsigned>((items + per_cta - 1) / per_cta);
}

template <typename Weight>
__global__ void EmbedKernel(EmbedArgs a) {
  const int64_t t = blockIdx.x;
  const auto* row = static_cast<const typename Weight::Storage*>(a.table) + a.ids[t] * a.cols;
  float* out = a.out + t * a.out_stride;
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) out[i] = Weight::Load(row[i]);
}

template <typename Out>
__global__ void __launch_bounds__(kThreads) AddRmsNormKernel(NormArgs a) {
  const int64_t t = blockIdx.x;
  float* residual = a.residual + t * a.residual_stride;
  float squares = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    float r = residual[i];
    if (a.x != nullptr) residual[i] = r += a.x[t * a.x_stride + i];
    squares = fmaf(r, r, squares);
  }
  const float sum = BlockSum<kThreads>(squares);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(a.cols) + a.eps);
  auto* out = static_cast<typename Out::Storage*>(a.out) + t * a.out_stride;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    out[i] = Out::Store(residual[i] * scale * a.weight[i]);
  }
}

// gelu_tanh(x) = x · ½ (1 + tanh(u)) = x / (1 + e^(-2u)), which does not cancel.
__device__ float Activate(bool gelu_tanh, float x) {
  constexpr float kSqrt2OverPi = 0.79788456f;
  const float u = gelu_tanh ? 2.0f * kSqrt2OverPi * (x + 0.044715f * x * x * x) : x;
  return x / (1.0f + expf(-u));
}

template <typename Out>
__global__ void GateKernel(GateArgs a) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= a.num_tokens * a.width) return;
  const int64_t t = i / a.width;
  const int64_t column = i % a.width;
  const float* gate = a.gate_up + t * a.in_stride + column;
  static_cast<typename Out::Storage*>(a.out)[t * a.out_stride + column] =
      Out::Store(Activate(a.gelu_tanh, gate[0]) * gate[a.width]);
}

// Copies with all threads of the CTA, 16 bytes at a time where both ends allow it.
__device__ void CopyBytes(const std::byte* from, std::byte* to, int64_t bytes, int64_t thread,
                          int64_t threads) {
  int64_t done = 0;
  if ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % sizeof(uint4) == 0) {
    const int64_t whole = bytes / static_cast<int64_t>(sizeof(uint4));
    for (int64_t i = thread; i < whole; i += threads) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    done = whole * static_cast<int64_t>(sizeof(uint4));
  }
  for (int64_t i = done + thread; i < bytes; i += threads) to[i] = from[i];
}

__global__ void GatherKernel(GatherArgs a) {
  const int64_t i = blockIdx.x;
  CopyBytes(a.source + a.rows[i] * a.source_stride, a.out + i * a.out_stride, a.row_bytes,
            threadIdx.x, kThreads);
}

__global__ void ScatterKernel(ScatterArgs a) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i < a.count) a.out[a.indices[i]] = a.values[i];
}

// A range is shared by gridDim.x CTAs.
__global__ void CopyKernel(const __grid_constant__ CopyArgs a) {
  CopyBytes(a.source[blockIdx.y], a.destination[blockIdx.y], a.bytes,
            blockIdx.x * int64_t{kThreads} + threadIdx.x, int64_t{gridDim.x} * kThreads);
}

}  // namespace

cudaError_t CheckDeviceCode() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, &EmbedKernel<BF16>);
}

cudaError_t LaunchEmbed(const EmbedArgs& args, cudaStream_t stream) {
  if (args.num_tokens == 0) return cudaSuccess;
  const auto kernel = args.table_bf16 ? &EmbedKernel<BF16> : &EmbedKernel<F32>;
  return LaunchKernel(kernel, Grid(args.num_tokens, 1), kThreads, 0, stream, args);
}

cudaError_t LaunchAddRmsNorm(const NormArgs& args, cudaStream_t stream) {
  if (args.num_tokens == 0) return cudaSuccess;
  const auto kernel = args.out_bf16 ? &AddRmsNormKernel<BF16> : &AddRmsNormKernel<F32>;
  return LaunchKernel(kernel, Grid(args.num_tokens, 1), kThreads, 0, stream, args);
}

cudaError_t LaunchGate(const GateArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.width == 0) return cudaSuccess;
  const auto kernel = args.out_bf16 ? &GateKernel<BF16> : &GateKernel<F32>;
  return LaunchKernel(kernel, Grid(args.num_tokens * args.width, kThreads), kThreads, 0, stream,
                      args);
}

cudaError_t LaunchGather(const GatherArgs& args, cudaStream_t stream) {
  if (args.num_rows * args.row_bytes == 0) return cudaSuccess;
  return LaunchKernel(GatherKernel, Grid(args.num_rows, 1), kThreads, 0, stream, args);
}

cudaError_t LaunchScatter(const ScatterArgs& args, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  return LaunchKernel(ScatterKernel, Grid(args.count, kThreads), kThreads, 0, stream, args);
}

cudaError_t LaunchCopyRanges(const CopyArgs& args, cudaStream_t stream) {
  if (args.num_ranges == 0 || args.bytes == 0) return cudaSuccess;
  constexpr int64_t kBytesPerCta = 64 << 10;
  const dim3 grid(Grid(args.bytes, kBytesPerCta), static_cast<unsigned>(args.num_ranges));
  return LaunchKernel(CopyKernel, grid, kThreads, 0, stream, args);
}

}  // namespace tokamak::cuda
