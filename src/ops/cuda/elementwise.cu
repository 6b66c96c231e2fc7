// Embed, AddRmsNorm, GatedActivation, GatherRows (and its inverse), CopyRows, ScatterElements,
// CopyRanges.
// All are bound by memory: each reads its inputs and writes its outputs once, f32 or bf16, rows
// contiguous inside, neighbouring threads on neighbouring groups of four elements. Groups are read
// and written by one instruction if the rows' lengths, strides and addresses allow it, else element
// by element; a thread has the same elements and adds them in the same order either way.
//
// Batch invariance: a token is one CTA (or its elements are one thread each), cut by the row's
// length alone.
//
// All but the last two are dependents: weights, which no kernel writes during a step, may be read
// before the kernel ahead has ended.
#include <type_traits>

#include "base/ceil_div.h"
#include "ops/cuda/activation.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/rank_kernels.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxNormThreads = 1024;

template <typename Weight, bool kVectors>
__global__ void __launch_bounds__(kThreads) EmbedKernel(EmbedShardArgs shard) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const EmbedArgs& a = shard.embed;
  const int64_t t = blockIdx.x;
  const int64_t row = a.ids[t] - shard.first_id;
  const bool is_here = 0 <= row && row < shard.num_rows;
  const auto* from = static_cast<const typename Weight::Storage*>(a.table) + row * a.cols;
  float* out = a.out + t * a.out_stride;
  for (int64_t i = threadIdx.x * 4; i < a.cols; i += kThreads * 4) {
    float values[4] = {};
    if (is_here) LoadFour<Weight, kVectors>(from + i, a.cols - i, values);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] *= a.scale;
    StoreFour<F32, kVectors>(values, a.cols - i, out + i);
  }
}

// A row of AddRmsNorm, four columns at a time.
template <typename X, typename Out, bool kVectors>
class NormRow {
 public:
  __device__ NormRow(const NormArgs& args, int64_t token) : a_(args) {
    if (a_.x != nullptr) x_ = static_cast<const typename X::Storage*>(a_.x) + token * a_.x_stride;
    if (a_.residual != nullptr) residual_ = a_.residual + token * a_.residual_stride;
    out_ = static_cast<typename Out::Storage*>(a_.out) + token * a_.out_stride;
    if (a_.copy != nullptr) copy_ = static_cast<uint16_t*>(a_.copy) + token * a_.copy_stride;
  }

  __device__ void LoadWeight(int64_t column, float (&values)[4]) const {
    if (column < a_.cols) LoadFour<F32, kVectors>(a_.weight + column, a_.cols - column, values);
  }
  __device__ void Read(int64_t column, float (&added)[4], float (&values)[4]) const {
    if (column >= a_.cols) return;
    const int64_t left = a_.cols - column;
    if (residual_ == nullptr) return LoadFour<X, kVectors>(x_ + column, left, values);
    if (x_ != nullptr) LoadFour<X, kVectors>(x_ + column, left, added);
    LoadFour<F32, kVectors>(residual_ + column, left, values);
  }
  // Adds what Read has read to the residual, and the sum's squares to `squares`.
  __device__ void Add(int64_t column, const float (&added)[4], float (&values)[4],
                      float& squares) const {
    if (column >= a_.cols) return;
    if (x_ != nullptr && residual_ != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] += added[i];
      StoreFour<F32, kVectors>(values, a_.cols - column, residual_ + column);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) squares = fmaf(values[i], values[i], squares);
  }
  __device__ float Scale(float squares) const {
    return 1.0f / sqrtf(BlockSum(squares) / static_cast<float>(a_.cols) + a_.eps);
  }
  __device__ void Write(int64_t column, const float (&values)[4], const float (&weight)[4],
                        float scale) const {
    if (column >= a_.cols) return;
    float normalized[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) normalized[i] = values[i] * scale * weight[i];
    StoreFour<Out, kVectors>(normalized, a_.cols - column, out_ + column);
    if constexpr (std::is_same_v<Out, F32>) {
      if (copy_ != nullptr) StoreFour<BF16, kVectors>(normalized, a_.cols - column, copy_ + column);
    }
  }

 private:
  const NormArgs& a_;
  const typename X::Storage* x_ = nullptr;
  float* residual_ = nullptr;
  typename Out::Storage* out_;
  uint16_t* copy_ = nullptr;
};

// Rows that fit into registers: kFours groups of four columns a thread.
template <typename X, typename Out, int kFours, bool kVectors>
__global__ void __launch_bounds__(kMaxNormThreads) AddRmsNormKernel(const NormArgs a) {
  ptx::LaunchDependents();
  const NormRow<X, Out, kVectors> row(a, blockIdx.x);
  const auto column = [](int g) { return (int64_t{g} * blockDim.x + threadIdx.x) * 4; };
  float weight[kFours][4] = {}, values[kFours][4] = {}, added[kFours][4] = {};
  // More groups of weights would not fit into registers beside the added values.
  constexpr bool kWeightFirst = kFours <= 2;
#pragma unroll
  for (int g = 0; kWeightFirst && g < kFours; ++g) row.LoadWeight(column(g), weight[g]);
  ptx::WaitForKernelAhead();
#pragma unroll
  for (int g = 0; g < kFours; ++g) row.Read(column(g), added[g], values[g]);
  float squares = 0;
#pragma unroll
  for (int g = 0; g < kFours; ++g) row.Add(column(g), added[g], values[g], squares);
#pragma unroll
  for (int g = 0; !kWeightFirst && g < kFours; ++g) row.LoadWeight(column(g), weight[g]);
  const float scale = row.Scale(squares);
#pragma unroll
  for (int g = 0; g < kFours; ++g) row.Write(column(g), values[g], weight[g], scale);
}

// Longer rows: reads the residual twice, the second time from the cache.
template <typename X, typename Out, bool kVectors>
__global__ void __launch_bounds__(kMaxNormThreads) AddRmsNormLongKernel(const NormArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const NormRow<X, Out, kVectors> row(a, blockIdx.x);
  float values[4] = {}, other[4] = {};
  float squares = 0;
  for (int64_t i = threadIdx.x * 4; i < a.cols; i += kMaxNormThreads * 4) {
    row.Read(i, other, values);
    row.Add(i, other, values, squares);
  }
  const float scale = row.Scale(squares);
  for (int64_t i = threadIdx.x * 4; i < a.cols; i += kMaxNormThreads * 4) {
    row.Read(i, other, values);
    row.LoadWeight(i, other);
    row.Write(i, values, other, scale);
  }
}

// kRare: one of the activations that few models have, and that need more registers.
template <bool kRare>
__device__ float Gated(const GateArgs& a, float gate, float up) {
  if constexpr (kRare) {
    if (a.activation == Activation::kGelu) return Gelu(gate) * up;
    if (a.activation == Activation::kQuickGelu) return QuickGelu(gate) * up;
    return ClampedSwiglu(gate, up, a.limit, a.alpha);
  } else {
    return SiluOrGeluTanh(a.activation == Activation::kGeluTanh, gate) * up;
  }
}

// A CTA has a part of a row: kFours times kThreads groups of four columns.
template <typename In, typename Out, int kFours, bool kVectors, bool kRare>
__global__ void __launch_bounds__(kThreads) GateKernel(const GateArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  const auto* gate = static_cast<const typename In::Storage*>(a.gate_up) + t * a.in_stride;
  auto* out = static_cast<typename Out::Storage*>(a.out) + t * a.out_stride;
  const auto column = [](int g) {
    return ((int64_t{blockIdx.y} * kFours + g) * kThreads + threadIdx.x) * 4;
  };
  float gates[kFours][4] = {}, ups[kFours][4] = {};
#pragma unroll
  for (int g = 0; g < kFours; ++g) {
    const int64_t i = column(g);
    if (i >= a.width) continue;
    LoadFour<In, kVectors>(gate + i, a.width - i, gates[g]);
    LoadFour<In, kVectors>(gate + a.width + i, a.width - i, ups[g]);
  }
#pragma unroll
  for (int g = 0; g < kFours; ++g) {
    const int64_t i = column(g);
    if (i >= a.width) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) gates[g][j] = Gated<kRare>(a, gates[g][j], ups[g][j]);
    StoreFour<Out, kVectors>(gates[g], a.width - i, out + i);
  }
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
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t i = blockIdx.x;
  const int64_t row = a.rows[i];
  if (row < 0) return;
  const int64_t to = a.to != nullptr ? a.to[i] : i;
  CopyBytes(a.source + row * a.source_stride, a.out + to * a.out_stride, a.row_bytes, threadIdx.x,
            kThreads);
}

__global__ void __launch_bounds__(kThreads) SpreadKernel(SpreadArgs a) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  const int64_t t = blockIdx.x;
  const auto* const from = reinterpret_cast<const uint4*>(a.source + t * a.source_stride);
  const int32_t* const rows = a.rows + t * a.top_k;
  const auto pieces = a.row_bytes / static_cast<int64_t>(sizeof(uint4));
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) {
    const uint4 piece = from[i];
#pragma unroll 4
    for (int j = 0; j < a.top_k; ++j) {
      reinterpret_cast<uint4*>(a.out + rows[j] * a.out_stride)[i] = piece;
    }
  }
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
  return cudaFuncGetAttributes(&attributes, &EmbedKernel<BF16, true>);
}

cudaError_t LaunchEmbed(const EmbedArgs& args, cudaStream_t stream) {
  return LaunchEmbedShard({.embed = args, .first_id = 0, .num_rows = INT64_MAX}, stream);
}

cudaError_t LaunchEmbedShard(const EmbedShardArgs& shard, cudaStream_t stream) {
  const EmbedArgs& args = shard.embed;
  if (args.num_tokens == 0) return cudaSuccess;
  const bool vectors = FitsFours(args.table, args.cols, ElementBytes(args.table_bf16)) &&
                       FitsFours(args.out, args.out_stride, sizeof(float));
  return LaunchAs(args.table_bf16, vectors, [&]<typename Weight, bool kVectors>() {
    return LaunchDependent(&EmbedKernel<Weight, kVectors>, Grid(args.num_tokens, 1), kThreads,
                           stream, shard);
  });
}

bool ReadsFours(const NormArgs& args) {
  return (args.x == nullptr || FitsFours(args.x, args.x_stride, ElementBytes(args.x_bf16))) &&
         (args.residual == nullptr ||
          FitsFours(args.residual, args.residual_stride, sizeof(float))) &&
         (args.copy == nullptr || FitsFours(args.copy, args.copy_stride, sizeof(uint16_t))) &&
         FitsFours(args.weight, args.cols, sizeof(float)) &&
         FitsFours(args.out, args.out_stride, ElementBytes(args.out_bf16));
}

cudaError_t LaunchAddRmsNorm(const NormArgs& args, cudaStream_t stream) {
  if (args.num_tokens == 0) return cudaSuccess;
  const int64_t fours = CeilDiv(args.cols, int64_t{4});
  int64_t of_thread = args.fours;
  while (fours > of_thread * kMaxNormThreads) of_thread *= 2;
  const int64_t threads =
      of_thread > 4 ? kMaxNormThreads : CeilDiv(CeilDiv(fours, of_thread), int64_t{kWarp}) * kWarp;
  return LaunchAs(args.x_bf16, args.out_bf16, ReadsFours(args),
                  [&]<typename X, typename Out, bool kVectors>() {
                    const auto kernel = of_thread == 1   ? &AddRmsNormKernel<X, Out, 1, kVectors>
                                        : of_thread == 2 ? &AddRmsNormKernel<X, Out, 2, kVectors>
                                        : of_thread == 4 ? &AddRmsNormKernel<X, Out, 4, kVectors>
                                                         : &AddRmsNormLongKernel<X, Out, kVectors>;
                    return LaunchDependent(kernel, Grid(args.num_tokens, 1),
                                           static_cast<unsigned>(threads), stream, args);
                  });
}

cudaError_t LaunchGate(const GateArgs& args, cudaStream_t stream) {
  if (args.num_tokens * args.width == 0) return cudaSuccess;
  const bool vectors = args.width % 4 == 0 &&
                       FitsFours(args.gate_up, args.in_stride, ElementBytes(args.in_bf16)) &&
                       FitsFours(args.out, args.out_stride, ElementBytes(args.out_bf16));
  const bool rare =
      args.activation != Activation::kSilu && args.activation != Activation::kGeluTanh;
  const int fours = rare ? 1 : args.fours;
  const dim3 grid(Grid(args.num_tokens, 1), Grid(args.width, int64_t{4} * fours * kThreads));
  return LaunchAs(args.in_bf16, args.out_bf16, vectors,
                  [&]<typename In, typename Out, bool kVectors>() {
                    const auto kernel = rare         ? &GateKernel<In, Out, 1, kVectors, true>
                                        : fours == 1 ? &GateKernel<In, Out, 1, kVectors, false>
                                                     : &GateKernel<In, Out, 2, kVectors, false>;
                    return LaunchDependent(kernel, grid, kThreads, stream, args);
                  });
}

cudaError_t LaunchGather(const GatherArgs& args, cudaStream_t stream) {
  if (args.num_rows * args.row_bytes == 0) return cudaSuccess;
  return LaunchDependent(GatherKernel, Grid(args.num_rows, 1), kThreads, stream, args);
}

bool FitsSpread(const SpreadArgs& args) {
  constexpr int64_t kBytes = sizeof(uint4);
  const auto address =
      reinterpret_cast<uintptr_t>(args.source) | reinterpret_cast<uintptr_t>(args.out);
  return address % kBytes == 0 &&
         (args.row_bytes | args.source_stride | args.out_stride) % kBytes == 0;
}

cudaError_t LaunchSpread(const SpreadArgs& args, cudaStream_t stream) {
  if (args.num_rows * args.row_bytes == 0) return cudaSuccess;
  return LaunchDependent(SpreadKernel, Grid(args.num_rows, 1), kThreads, stream, args);
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
