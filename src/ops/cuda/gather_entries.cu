// Copies the cache entries of a chunk's positions to rows of bf16 (expanded_attention.h). A warp
// has a row, eight elements in a lane at a time. Bound: the bytes of the entries, read and written.
#include <type_traits>

#include "ops/cuda/device.cuh"
#include "ops/cuda/expanded_attention.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_as.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kVector = 8;  // elements

template <typename Storage>
struct alignas(kVector * sizeof(Storage)) Eight {
  Storage values[kVector];
};

// Returns the segment that has the row.
__device__ ExpandedSegment SegmentOf(const GatherEntriesArgs& a, int row) {
  int low = 0, high = a.num_segments;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (a.segments[middle].first_row <= row ? low : high) = middle;
  }
  return a.segments[low];
}

template <typename Cache>
__global__ void __launch_bounds__(kWarps* kWarp)
    GatherEntriesKernel(const __grid_constant__ GatherEntriesArgs a) {
  using Storage = typename Cache::Storage;
  ptx::LaunchDependents();
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  ptx::WaitForKernelAhead();
  if (row >= a.num_rows) return;
  const ExpandedSegment segment = SegmentOf(a, row);
  const KvLayerView& cache = a.cache;
  const int key = segment.first_key + row - segment.first_row;
  const int32_t* const table = a.block_tables + a.table_rows[segment.sequence] * a.table_stride;
  const std::byte* const block =
      cache.base + table[key / cache.block_size] * cache.block_stride + cache.k_offset;
  const int dim = cache.head_dim;
  const auto* const from =
      reinterpret_cast<const Storage*>(block) + int64_t{key % cache.block_size} * dim;
  uint16_t* const to = a.out + int64_t{row} * dim;
  for (int d = lane * kVector; d < dim; d += kWarp * kVector) {
    const auto eight = *reinterpret_cast<const Eight<Storage>*>(from + d);
    Eight<uint16_t> out;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if constexpr (std::is_same_v<Cache, BF16>) {
        out.values[i] = eight.values[i];
      } else {
        out.values[i] = BF16::Store(Cache::Load(eight.values[i]));
      }
    }
    *reinterpret_cast<Eight<uint16_t>*>(to + d) = out;
  }
}

}  // namespace

bool HasExpandedAttention(const AttentionShape& shape) {
  const LatentExpansion& e = shape.expansion;
  return shape.values_in_keys && shape.num_kv_heads == 1 && shape.causal && shape.window == 0 &&
         (shape.kv_dtype == DType::kBF16 || shape.kv_dtype == DType::kF8E4M3) &&
         shape.head_dim - shape.ValueDim() == kExpandedRotatedDim && shape.ValueDim() % 16 == 0 &&
         e.nope_dim == kExpandedNopeDim && e.value_dim == kExpandedValueDim &&
         e.min_queries >= kMinExpandedQueries && e.chunk_keys > 0 && e.chunk_keys % kSplitKeys == 0;
}

cudaError_t LaunchGatherEntries(const GatherEntriesArgs& args, cudaStream_t stream) {
  const KvLayerView& cache = args.cache;
  const auto base = reinterpret_cast<int64_t>(cache.base);
  if (((base + cache.k_offset) | cache.block_stride) % 16 != 0) return cudaErrorInvalidValue;
  const auto launch = [&](auto kernel) {
    return LaunchDependent(kernel, Grid(args.num_rows, kWarps), kWarps * kWarp, stream, args);
  };
  return cache.dtype == DType::kF8E4M3 ? launch(&GatherEntriesKernel<E4M3>)
                                       : launch(&GatherEntriesKernel<BF16>);
}

}  // namespace tokamak::cuda
