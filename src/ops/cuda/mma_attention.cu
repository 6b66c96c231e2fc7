// Attention by mma.sync (mma_attention.h). Bound: the bytes of K and V, each read once per tile of
// rows; the query heads of a KV head share a tile.
//
// A CTA takes units of up to 16 rows and one KV head. One warp requests tiles of 64 keys, then of
// their values, by TMA: a box per block of the cache and 64 dimensions, in rows of 128 swizzled
// bytes. Four warps share a tile: each scores 16 of its keys, and sums up a quarter of the
// dimensions over all of them, so that two barriers per tile exchange the highest scores and the
// weights. State stays in registers: lane l has rows l / 4 and l / 4 + 8 and, of every 8 columns, l
// % 4 · 2 and the next.
//
// On GPUs without TMA the loading warp copies by cp.async (lane_attention_tiles.cuh). There are no
// wide tiles there, so prefills take these too. Of a cache in FP8, four warps load instead
// (fp8_attention_tiles.cuh).
//
// Shared memory is 51 KB, so that an SM holds two CTAs and leaves room for the next kernel's.
// Without TMA it is 36 KB, so that two CTAs fit into the 100 KB of compute capability 8.6. There,
// registers suffice for one CTA if the cache is in FP8. Heads of 256 take 107 KB, of which an SM
// also holds two, or 75 KB without TMA.
#include "ops/cuda/mma_attention.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "ops/cuda/attention_splits.cuh"
#include "ops/cuda/fp8_attention_tiles.cuh"
#include "ops/cuda/kernel_form.h"
#include "ops/cuda/lane_attention_tiles.cuh"
#include "ops/cuda/mma_attention_rows.cuh"
#include "ops/cuda/mma_attention_tiles.cuh"
#include "ops/cuda/mma_attention_weights.cuh"

namespace tokamak::cuda {
namespace mma_attention {
namespace {

constexpr int kWarps = 4;  // that compute
constexpr int kConsumers = kWarps * kWarp;
constexpr int kThreads = kConsumers + kWarp;
constexpr int kFp8Threads = kConsumers + kFp8LoaderThreads;
// Registers of a thread, for a cache in FP8. At launch all have equally many; then the loading
// warps give some of their own to the others.
constexpr int kFp8LoaderRegisters = 72, kFp8ComputerRegisters = 184;

template <int kHeadDim, KernelForm kForm>
struct Shape {
  static constexpr bool kIsHopper = kForm == KernelForm::kHopper;
  static constexpr int kRingBytes = (kIsHopper ? 48 : 32) << 10;  // at least
  static constexpr unsigned kStages =
      std::max(kRingBytes / kStageBytes<kHeadDim>, kIsHopper ? 3 : 2);
  static constexpr int kWarpDims = (kHeadDim / kWarps + kStep - 1) / kStep * kStep;
  static constexpr int kPairs = kWarpDims / kStep;  // pairs of 8 columns of values, per warp
  static constexpr int kValueWarps = kHeadDim / kWarpDims;  // others have no columns of values
  static_assert(kHeadDim % kWarpDims == 0);

  // The queries of a tile are the same for all warps. Those of heads of 256 would leave too few
  // registers.
  static constexpr bool kSharesQueries = kHeadDim > 128;
  struct NoQueries {};
  struct Queries {
    Four<uint32_t> queries[kHeadDim / kStep][kWarp];
  };

  struct alignas(SwizzleAligned) Memory : std::conditional_t<kSharesQueries, Queries, NoQueries> {
    alignas(SwizzleAligned) uint8_t stages[kStages][kStageBytes<kHeadDim>];
    // bf16; padded, so that ldmatrix meets no bank twice.
    alignas(16) uint16_t weights[kTileRows][kKeyTile + 8];
    float highest[kWarps][kTileRows];
    float sums[kWarps][kTileRows];
    RingBarriers<kStages> ring;
    bool is_last;
  };
};

// The work of the computing warps.
template <int kHeadDim, KernelForm kForm>
class Computer : TileComputer<typename Shape<kHeadDim, kForm>::Memory, kWarps, kWarps> {
 public:
  using S = Shape<kHeadDim, kForm>;
  using Base = TileComputer<typename S::Memory, kWarps, kWarps>;
  using State = Sums<2 * S::kPairs>;
  using Part = Place<kHeadDim, kTileRows, 2 * S::kPairs>;

  __device__ Computer(const AttentionArgs& a, typename S::Memory& memory) : Base(a, memory) {}

  __device__ void Run(const AttentionUnit& unit, int kv_head) {
    const Part part = {.a = a_,
                       .kv_head = kv_head,
                       .first_row = RowOf(0),
                       .first_dim = warp_ * S::kWarpDims + lane_ % 4 * 2,
                       .writes_state = warp_ == 0 && lane_ % 4 == 0};
    const Rows rows(a_, unit);
    this->TakeKeys(rows);
    ptx::WaitForKernelAhead();
    LoadQueries(rows, kv_head);
    if constexpr (S::kSharesQueries) SyncComputers();
    State total;
    total.Clear();
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      State sums;
      ComputeSplit(rows, split, sums);
      if (unit.IsPart()) {
        if (HasColumns()) part.WritePartial(unit, rows, split, sums);
      } else {
        total.TakeIn(rows, RowOf(0), split, 0, sums);
        total.TakeIn(rows, RowOf(1), split, 1, sums);
      }
    }
    if (unit.IsPart()) {
      const auto sync = [this] { SyncComputers(); };
      if (IsLastPart(a_, unit, kv_head, memory_.is_last, sync)) {
        MergeParts<kHeadDim, kConsumers>(a_, unit, rows, kv_head);
      }
    } else if (HasColumns()) {
      part.Write(rows, total);
    }
  }

 private:
  using Base::a_;
  using Base::lane_;
  using Base::memory_;
  using Base::RowOf;
  using Base::SyncComputers;
  using Base::warp_;

  // Whether the warp sums up any of the values' columns.
  __device__ bool HasColumns() const { return S::kValueWarps == kWarps || warp_ < S::kValueWarps; }

  __device__ void LoadQueries(const Rows& rows, int kv_head) {
    const bool fits = QueryPairsFit(a_);
    bool is_row[2];
    int64_t token[2];
    int first[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      is_row[i] = RowOf(i) < rows.count;
      const int row = is_row[i] ? RowOf(i) : 0;
      token[i] = rows.Token(row);
      first[i] = (kv_head * rows.group + rows.HeadInGroup(row)) * kHeadDim + lane_ % 4 * 2;
    }
#pragma unroll
    for (int k = 0; k < kHeadDim / kStep; ++k) {
      if (S::kSharesQueries && k % kWarps != warp_) continue;
      Four<uint32_t> query;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int i = c % 2;
        const uint32_t pair = QueryPair(a_, token[i], first[i] + k * kStep + c / 2 * 8, fits);
        query.values[c] = is_row[i] ? pair : 0;
      }
      Query(k) = query;
    }
  }

  // The fragment of 16 dimensions of all rows.
  __device__ Four<uint32_t>& Query(int k) {
    if constexpr (S::kSharesQueries) {
      return memory_.queries[k][lane_];
    } else {
      return queries_[k];
    }
  }

  // Computes the sums of a split; the sums of weights are complete in every warp.
  __device__ void ComputeSplit(const Rows& rows, int split, State& sums) {
    sums.Clear();
    const KeyTiles tiles(rows, split);
    const SeenInSplit seen(rows, tiles);
    for (int first = tiles.begin; first < tiles.end; first += kKeyTile) {
      float scores[2][4];
      Score(scores);
      this->Weigh(rows, first, scores, sums);
      AddValues(rows, seen, first, sums);
    }
    this->AddUpWeights(sums);
  }

  // Computes scores[j]: those of the rows and the warp's keys [8 j, 8 j + 8).
  __device__ void Score(float (&scores)[2][4]) {
    memory_.ring.WaitUntilFilled(fill_);
    const uint8_t* const keys = memory_.stages[memory_.ring.Slot(fill_)];
#pragma unroll
    for (int c = 0; c < 4; ++c) scores[0][c] = scores[1][c] = 0;
    const int matrix = lane_ / 8;
    const int key = warp_ * kStep + matrix / 2 * 8 + lane_ % 8;
#pragma unroll
    for (int k = 0; k < kHeadDim / kStep; ++k) {
      uint32_t b[4];
      ptx::LoadMatrices(b, ChunkOf(keys, key, 2 * k + matrix % 2));
      const Four<uint32_t> query = Query(k);
      ptx::MultiplyBf16(scores[0], query.values, {b[0], b[1]});
      ptx::MultiplyBf16(scores[1], query.values, {b[2], b[3]});
    }
    Release();
    if (a_.softcap <= 0) return;
    const ScoreCap cap(a_);
#pragma unroll
    for (int c = 0; c < 8; ++c) scores[c / 4][c % 4] = cap.Of(scores[c / 4][c % 4]);
  }

  // Adds the values of the tile that begins at key `first`.
  __device__ void AddValues(const Rows& rows, const SeenInSplit& seen, int first, State& sums) {
    memory_.ring.WaitUntilFilled(fill_);
    if (!HasColumns()) {
      Release();
      return;
    }
    if (seen.All(first, kKeyTile)) {
#pragma unroll
      for (int k = 0; k < kKeyTile / kStep; ++k) {
        AddStep(k, sums, [](const auto& weights, const auto& values, auto& to) {
          ptx::MultiplyBf16(to, weights, values);
        });
      }
    } else {
      // The rows see the same keys.
      const bool alike = seen.all_from == seen.from && seen.all_to == rows.LastKey();
      // Rolled up: in a short kernel, instructions that are not in the cache take long.
#pragma unroll 1
      for (int k = seen.BeginStep(first); k < seen.EndStep(first); ++k) {
        const int key = first + k * kStep;
        const bool all = seen.All(key, kStep);
        AddStep(k, sums, [&](const auto& weights, auto& values, auto& sum) {
          if (!all && !alike) {
            AddSeen(rows, 0, rows.count, seen.from, seen.to, key, weights, values, sum);
            return;
          }
          if (!all) KeepSeen(key, seen.from, seen.to, values);
          ptx::MultiplyBf16(sum, weights, values);
        });
      }
    }
    Release();
  }
  // Calls add(weights, values, sums) for 16 keys of the tile and each 8 columns.
  template <typename Add>
  __device__ void AddStep(int k, State& sums, Add add) {
    const uint8_t* const stage = memory_.stages[memory_.ring.Slot(fill_)];
    const int matrix = lane_ / 8;
    const int row = matrix % 2 * 8 + lane_ % 8;  // of the weights; along k, of the values
    uint32_t weights[4];
    ptx::LoadMatrices(weights, &memory_.weights[row][k * kStep + matrix / 2 * 8]);
#pragma unroll
    for (int pair = 0; pair < S::kPairs; ++pair) {
      const int chunk = warp_ * (S::kWarpDims / 8) + 2 * pair + matrix / 2;
      uint32_t values[4];
      ptx::LoadMatricesTransposed(values, ChunkOf(stage, k * kStep + row, chunk));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t half[2] = {values[2 * j], values[2 * j + 1]};
        add(weights, half, sums.values[2 * pair + j]);
      }
    }
  }

  // Releases the slot that was read last.
  __device__ void Release() {
    if constexpr (S::kIsHopper) {
      memory_.ring.ReleaseAfterLoads(fill_++);
    } else {
      memory_.ring.ReleaseToThreads(fill_++);
    }
  }

  Four<uint32_t> queries_[S::kSharesQueries ? 1 : kHeadDim / kStep];
  unsigned fill_ = 0;
};

// What a CTA does whose loading warps call Load of what make_loader(memory) returns. CTAs without a
// job end at once; there are many if sequences are few. Loader says why the plan may be read so
// early. One thread of the grid must still wait for the kernel ahead.
template <int kHeadDim, KernelForm kForm, bool kFp8, typename MakeLoader>
__device__ void RunCta(const AttentionArgs& a, MakeLoader make_loader) {
  using S = Shape<kHeadDim, kForm>;
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto& memory = *reinterpret_cast<typename S::Memory*>(aligned);
  ptx::LaunchDependents();
  const auto* const units = reinterpret_cast<const AttentionUnit*>(a.plan + 1);
  const int num_units = a.plan->num_units;
  if (static_cast<int>(blockIdx.x) >= num_units * a.cache.num_kv_heads) {
    if (blockIdx.x == 0) ptx::WaitForKernelAhead();
    return;
  }
  constexpr int kWriters = kFp8 ? kFp8LoaderWarps : S::kIsHopper ? 1 : kWarp;
  if (threadIdx.x == 0) memory.ring.Init(kWarps, kWriters);
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if constexpr (kFp8 && S::kIsHopper) ptx::GiveRegistersBack<kFp8LoaderRegisters>();
    auto loader = make_loader(memory);
    ForEachJob(a, units, num_units,
               [&](const AttentionUnit& unit, int kv_head, const AttentionUnit& next) {
                 loader.Load(unit, kv_head, next);
               });
    if constexpr (!S::kIsHopper && !kFp8) loader.End();
  } else {
    if constexpr (kFp8 && S::kIsHopper) ptx::TakeRegisters<kFp8ComputerRegisters>();
    Computer<kHeadDim, kForm> computer(a, memory);
    ForEachJob(a, units, num_units,
               [&](const AttentionUnit& unit, int kv_head, const AttentionUnit&) {
                 computer.Run(unit, kv_head);
               });
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2)
    MmaAttentionKernel(const __grid_constant__ CUtensorMap keys,
                       const __grid_constant__ CUtensorMap values,
                       const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    RunCta<kHeadDim, KernelForm::kHopper, false>(a, [&](auto& memory) {
      return Loader<kHeadDim, std::remove_reference_t<decltype(memory)>>(&keys, &values, a, memory);
    });
  }
}
template <int kHeadDim>
__global__ void __launch_bounds__(kFp8Threads, 2)
    Fp8MmaAttentionKernel(const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    RunCta<kHeadDim, KernelForm::kHopper, true>(a, [&](auto& memory) {
      constexpr int kParts = kHeadDim > 128 ? 2 : 1;  // of a fill, as registers allow
      return Fp8Loader<kHeadDim, 2, kParts, false, std::remove_reference_t<decltype(memory)>>(
          a, memory);
    });
  }
}
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2)
    AmpereMmaAttentionKernel(const __grid_constant__ AttentionArgs a) {
  RunCta<kHeadDim, KernelForm::kAmpere, false>(a, [&](auto& memory) {
    using Memory = std::remove_reference_t<decltype(memory)>;
    return LaneLoader<kHeadDim, kKeyTile, true, Memory>(a, memory);
  });
}

template <int kHeadDim>
__global__ void __launch_bounds__(kFp8Threads, 1)
    AmpereFp8MmaAttentionKernel(const __grid_constant__ AttentionArgs a) {
  RunCta<kHeadDim, KernelForm::kAmpere, true>(a, [&](auto& memory) {
    using Memory = std::remove_reference_t<decltype(memory)>;
    return Fp8Loader<kHeadDim, 2, 1, false, Memory, KernelForm::kAmpere>(a, memory);
  });
}

// Launches kernel(maps..., args).
template <typename Memory, typename... Params, typename... Maps>
cudaError_t LaunchCtas(void (*kernel)(Params...), const AttentionArgs& args, int ctas, int threads,
                       bool dependent, cudaStream_t stream, const Maps&... maps) {
  constexpr size_t kBytes = sizeof(Memory);
  static_assert(kBytes <= 113 << 10);  // half of an SM's
  const cudaError_t error = AllowSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  const auto grid = static_cast<unsigned>(ctas * args.cache.num_kv_heads);
  return LaunchGroups({.dependent = dependent}, kernel, grid, threads, kBytes, stream, maps...,
                      args);
}

template <int kHeadDim>
cudaError_t Launch(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  using Memory = typename Shape<kHeadDim, KernelForm::kHopper>::Memory;
  if (args.cache.dtype == DType::kF8E4M3) {
    return LaunchCtas<Memory>(&Fp8MmaAttentionKernel<kHeadDim>, args, ctas, kFp8Threads, true,
                              stream);
  }
  return WithCacheMaps(args, [&](const CUtensorMap& keys, const CUtensorMap& values) {
    return LaunchCtas<Memory>(&MmaAttentionKernel<kHeadDim>, args, ctas, kThreads, true, stream,
                              keys, values);
  });
}

template <int kHeadDim>
cudaError_t LaunchAmpere(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  if constexpr (kHasAmpereForm) {
    using Memory = typename Shape<kHeadDim, KernelForm::kAmpere>::Memory;
    const bool is_fp8 = args.cache.dtype == DType::kF8E4M3;
    return LaunchCtas<Memory>(
        is_fp8 ? &AmpereFp8MmaAttentionKernel<kHeadDim> : &AmpereMmaAttentionKernel<kHeadDim>, args,
        ctas, is_fp8 ? kFp8Threads : kThreads, HasDependents(), stream);
  } else {
    return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace mma_attention

bool HasMmaAttention(DType dtype, int32_t head_dim, int32_t block_size) {
  return (dtype == DType::kBF16 || dtype == DType::kF8E4M3) &&
         (head_dim == 32 || head_dim == 64 || head_dim == 96 || head_dim == 128 ||
          head_dim == 256) &&
         block_size >= 8 && std::has_single_bit(static_cast<unsigned>(block_size));
}

bool MmaAttentionReads(const KvLayerView& cache) {
  constexpr int64_t kUnit = 16;  // bytes
  const auto base = reinterpret_cast<int64_t>(cache.base);
  return HasMmaAttention(cache.dtype, cache.head_dim, cache.block_size) &&
         cache.ValueDim() == cache.head_dim && !cache.values_in_keys &&
         (base + cache.k_offset) % kUnit == 0 && (base + cache.v_offset) % kUnit == 0 &&
         cache.block_stride % kUnit == 0;
}

cudaError_t LaunchMmaAttention(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  if (!MmaAttentionReads(args.cache) || args.slopes != nullptr) return cudaErrorInvalidValue;
  return mma_attention::WithHeadDim(args.cache.head_dim, [&](auto dim) {
    return mma_attention::Launch<decltype(dim)::value>(args, ctas, stream);
  });
}

cudaError_t LaunchAmpereAttention(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  if (!MmaAttentionReads(args.cache) || args.slopes != nullptr) return cudaErrorInvalidValue;
  return mma_attention::WithHeadDim(args.cache.head_dim, [&](auto dim) {
    return mma_attention::LaunchAmpere<decltype(dim)::value>(args, ctas, stream);
  });
}

}  // namespace tokamak::cuda
