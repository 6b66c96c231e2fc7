// Kernels before and behind an exchange of ranks: they add the parts of a sum in the order of the
// ranks, and bring columns into rows of equal width and back. Bound by memory: each value is read
// once and written once.
//
// These are no dependents, because NCCL's kernels run ahead of them.
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"
#include "ops/cuda/rank_kernels.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;

// sum[i] = parts[0][i] + parts[1][i] + ..., from left to right. A thread has four neighbours.
template <bool kVectors>
__global__ void __launch_bounds__(kThreads) AddPartsKernel(const AddPartsArgs a) {
  ptx::LaunchDependents();
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (i >= a.count) return;
  float sum[4], part[4];
  LoadFour<F32, kVectors>(a.parts + i, a.count - i, sum);
  for (int rank = 1; rank < a.num_parts; ++rank) {
    LoadFour<F32, kVectors>(a.parts + rank * a.count + i, a.count - i, part);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[j] += part[j];
  }
  StoreFour<F32, kVectors>(sum, a.count - i, a.sum + i);
}

// own[i] = element begin + i of x, whose rows are filled up with zeros to the widest.
template <typename T>
__global__ void __launch_bounds__(kThreads) PackColumnsKernel(const ColumnsArgs a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.count) return;
  const int64_t row = (a.begin + i) / a.widest, col = (a.begin + i) % a.widest;
  const IndexRange& columns = a.columns[a.rank];
  const bool is_there = col < columns.end - columns.begin;
  static_cast<T*>(a.own)[i] = is_there ? static_cast<const T*>(a.x)[row * a.x_stride + col] : T{};
}

// Puts element begin + i of each rank where it belongs. Of ranks with the same column, the first
// one writes it.
template <typename T>
__global__ void __launch_bounds__(kThreads) UnpackColumnsKernel(const ColumnsArgs a) {
  ptx::LaunchDependents();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.count) return;
  const int rank = static_cast<int>(blockIdx.y);
  const int64_t row = (a.begin + i) / a.widest;
  const int64_t col = (a.begin + i) % a.widest + a.columns[rank].begin;
  if (col >= a.columns[rank].end) return;
  for (int before = 0; before < rank; ++before) {
    if (a.columns[before].begin <= col && col < a.columns[before].end) return;
  }
  static_cast<T*>(a.out)[row * a.out_stride + col] =
      static_cast<const T*>(a.parts)[rank * a.count + i];
}

cudaError_t Launch(void (*of_16_bits)(ColumnsArgs), void (*of_32_bits)(ColumnsArgs),
                   const ColumnsArgs& args, int num_ranks, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  const dim3 grid(Grid(args.count, kThreads), static_cast<unsigned>(num_ranks));
  return LaunchKernel(args.element_bytes == 2 ? of_16_bits : of_32_bits, grid, kThreads, 0, stream,
                      args);
}

}  // namespace

cudaError_t LaunchAddParts(const AddPartsArgs& args, cudaStream_t stream) {
  if (args.count == 0) return cudaSuccess;
  const bool vectors = args.count % 4 == 0 && FitsFours(args.parts, 0, sizeof(float)) &&
                       FitsFours(args.sum, 0, sizeof(float));
  return LaunchKernel(vectors ? &AddPartsKernel<true> : &AddPartsKernel<false>,
                      Grid(args.count, int64_t{4} * kThreads), kThreads, 0, stream, args);
}

cudaError_t LaunchPackColumns(const ColumnsArgs& args, cudaStream_t stream) {
  return Launch(&PackColumnsKernel<uint16_t>, &PackColumnsKernel<uint32_t>, args, 1, stream);
}

cudaError_t LaunchUnpackColumns(const ColumnsArgs& args, cudaStream_t stream) {
  return Launch(&UnpackColumnsKernel<uint16_t>, &UnpackColumnsKernel<uint32_t>, args,
                args.num_ranks, stream);
}

}  // namespace tokamak::cuda
