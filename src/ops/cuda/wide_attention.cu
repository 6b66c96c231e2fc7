// Attention by wgmma in tiles of up to 128 rows, for prefills (mma_attention.h). Bound: the tensor
// cores.
//
// A CTA takes units of up to 128 rows and one KV head. One warp requests tiles of 64 keys, then of
// their values, by TMA, as in mma_attention.cu. Two warpgroups have 64 rows each, go their own
// ways, and release a tile when both have read it: while one turns scores into weights, the other
// multiplies. Queries and weights are in registers, as wgmma's first operand. A warp holds all 64
// keys of its 16 rows, so that nothing is exchanged.
//
// If a row of a warpgroup does not see all keys of a tile, values of unseen keys may not be finite
// and must not count. The warpgroup checks the tile's values; if some are not finite, its warps
// multiply by mma.sync, which leaves sums in the same registers as wgmma.
#include <cstdint>

#include "ops/cuda/attention_splits.cuh"
#include "ops/cuda/expanded_attention_tiles.cuh"
#include "ops/cuda/fp8_attention_tiles.cuh"
#include "ops/cuda/mma_attention.h"
#include "ops/cuda/mma_attention_rows.cuh"
#include "ops/cuda/mma_attention_tiles.cuh"

namespace tokamak::cuda {
namespace mma_attention {
namespace {

constexpr int kWarpgroups = 2;
constexpr int kWarps = 4;  // of a warpgroup
constexpr int kGroupThreads = kWarps * kWarp;
constexpr int kGroupRows = kWideRows / kWarpgroups;
constexpr int kConsumers = kWarpgroups * kGroupThreads;
constexpr int kThreads = kConsumers + kGroupThreads;  // one warp of the last warpgroup loads bf16
// Registers of a thread. At launch all three warpgroups have equally many; then the loader gives
// some of its own to the others.
constexpr int kLoaderRegisters = 24, kComputerRegisters = 240;
// The same if four warps load a cache in FP8 (fp8_attention_tiles.cuh).
constexpr int kFp8LoaderRegisters = 72, kFp8ComputerRegisters = 216;
static_assert(kThreads == kConsumers + kFp8LoaderThreads);
constexpr int kSteps = kKeyTile / kStep;  // of keys, in a tile
static_assert(kGroupRows == 64);          // of a wgmma

template <int kHeadDim>
struct Shape {
  static constexpr bool kIsChunk = false;
  static constexpr int kKeyDim = kHeadDim, kValueDim = kHeadDim;
  static constexpr unsigned kStages = 8;
  // Of 8 columns. A product takes whole strips of values, whose columns beside the head are zeros.
  static constexpr int kGroups = kStrips<kHeadDim> * kStripDims / 8;

  struct alignas(SwizzleAligned) Memory {
    uint8_t stages[kStages][kStageBytes<kHeadDim>];
    // The merged values of each thread, as its Sums have them.
    Four<float> totals[kGroups][kConsumers];
    RingBarriers<kStages> ring;
    // Whether each warp saw values that are not finite. Two sets take turns, because a warp may be
    // a tile ahead of the others.
    bool non_finite[kWarpgroups][2][kWarps];
    bool is_last;
  };
  static_assert(sizeof(Memory) <= 227 << 10);
};

// Of keys and values that are decompressed from latents (expanded_attention.h). One run of sums
// over all of a chunk's keys needs no totals.
struct ExpandedShape {
  static constexpr bool kIsChunk = true;
  static constexpr int kKeyDim = kExpandedKeyDim, kValueDim = kExpandedValueDim;
  static constexpr unsigned kStages = 8;
  static constexpr int kGroups = kValueDim / 8;

  struct alignas(SwizzleAligned) Memory {
    uint8_t stages[kStages][kStageBytes<kKeyDim>];
    RingBarriers<kStages> ring;
    bool non_finite[kWarpgroups][2][kWarps];  // as above
  };
  static_assert(sizeof(Memory) <= 227 << 10);
};

// The first and last keys that rows see.
struct SeenKeys {
  SeenKeys() = default;
  __device__ SeenKeys(const Rows& rows, int lane_row, int group_row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      low[i] = rows.FirstKey(lane_row + 8 * i);
      high[i] = rows.LastKey(lane_row + 8 * i);
    }
    const int end = min(group_row + kGroupRows, rows.count);
    any_low = rows.FirstKey(group_row);
    any_high = group_row < end ? rows.LastKey(end - 1) : -1;
    all_low = rows.FirstKey(max(end, 1) - 1);
    all_high = rows.LastKey(group_row);
  }
  // For the tile of keys from `first` on.
  __device__ bool HasAny(int first) const {
    return any_low < first + kKeyTile && first <= any_high;
  }
  __device__ bool HasAll(int first) const {
    return all_low <= first && first + kKeyTile - 1 <= all_high;
  }
  __device__ bool Has(int i, int key) const { return low[i] <= key && key <= high[i]; }

  int low[2], high[2];    // keys that each of the lane's two rows sees
  int any_low, any_high;  // keys that at least one row of the warpgroup sees
  int all_low, all_high;  // keys that all rows of the warpgroup see
};

// The work of a computing warpgroup.
template <typename S>
class Computer {
 public:
  static constexpr int kKeyDim = S::kKeyDim, kValueDim = S::kValueDim;
  using State = Sums<S::kGroups>;
  using Part = Place<kValueDim, kWideRows, S::kGroups>;

  // The compiler must know that `warp` is equal in all lanes (a result of __shfl_sync).
  __device__ Computer(const AttentionArgs& a, typename S::Memory& memory, int warp)
      : a_(a),
        memory_(memory),
        group_(warp / kWarps),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        scale_(ScoreCap::Scale(a)) {
#pragma unroll
    for (float& score : scores_) score = 0;
  }

  __device__ void Run(const AttentionUnit& unit, int kv_head) {
    const Part part = PartOf(kv_head);
    const Rows rows(a_, unit);
    Begin(rows, kv_head);
    highest_[0] = highest_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
    State sums;
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      Compute(rows, KeyTiles(rows, split), sums);
      if (unit.IsPart()) {
        part.WritePartial(unit, rows, split, sums);
      } else {
        TakeIntoTotals(split, seen_.low, seen_.high, sums, highest_, sum_, memory_.totals);
      }
    }
    if (unit.IsPart()) {
      const auto sync = [] { ptx::SyncNamed(1, kConsumers); };
      if (!IsLastPart(a_, unit, kv_head, memory_.is_last, sync)) return;
      for (int split = unit.begin_split; split < unit.end_split; ++split) {
        part.LoadPartial(unit, split, 0, sums);
        part.LoadPartial(unit, split, 1, sums);
        TakeIntoTotals(split, seen_.low, seen_.high, sums, highest_, sum_, memory_.totals);
      }
    }
    LoadTotals(highest_, sum_, memory_.totals, sums);
    part.Write(rows, sums);
  }

  // The same for a chunk of decompressed keys. Chunks of a sequence come one after the other.
  __device__ void RunChunk(const AttentionUnit& unit, int head) {
    const Part part = PartOf(head);
    const Rows rows(a_, unit);
    Begin(rows, head);
    State sums;
    Compute(rows, KeyTiles(rows, unit.begin_part, unit.end_part), sums);
    if (unit.begin_part > unit.begin_split) part.TakeInState(rows, sums);
    if (unit.end_part < unit.end_split) {
      part.StoreState(rows, sums);
    } else {
      part.Write(rows, sums);
    }
  }

 private:
  __device__ Part PartOf(int kv_head) const {
    return {.a = a_,
            .kv_head = kv_head,
            .first_row = RowOf(0),
            .first_dim = lane_ % 4 * 2,
            .writes_state = lane_ % 4 == 0};
  }
  __device__ void Begin(const Rows& rows, int kv_head) {
    LoadQueries(rows, kv_head);
    seen_ = SeenKeys(rows, RowOf(0), group_ * kGroupRows);
  }
  __device__ int RowOf(int i) const { return warp_ * 16 + lane_ / 4 + 8 * i; }
  __device__ void SyncGroup() { ptx::SyncNamed(2 + group_, kGroupThreads); }

  __device__ void LoadQueries(const Rows& rows, int kv_head) {
    const bool fits = QueryPairsFit(a_);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_row = RowOf(i) < rows.count;
      const int row = is_row ? RowOf(i) : 0;
      const int64_t token = rows.Token(row);
      const int first = (kv_head * rows.group + rows.HeadInGroup(row)) * kKeyDim + lane_ % 4 * 2;
#pragma unroll
      for (int d = 0; d < kKeyDim; d += 8) {
        const uint32_t pair = QueryPair(a_, token, first + d, fits);
        queries_[d / kStep][d % kStep / 8 * 2 + i] = is_row ? pair : 0;
      }
    }
  }

  // Computes the sums over these keys.
  __device__ void Compute(const Rows& rows, const KeyTiles& tiles, State& sums) {
    sums.Clear();
    float parts[kSteps][2] = {};
    float factors[2];
    int first = tiles.begin;
    for (; first < tiles.end && !seen_.HasAny(first); first += kKeyTile) SkipTile();
    // The values of a tile are added while the scores of the next become weights.
    bool is_pending = false;
    for (; first < tiles.end && seen_.HasAny(first); first += kKeyTile) {
      if (is_pending && seen_.HasAll(first - kKeyTile)) {
        memory_.ring.WaitUntilFilled(fill_);
        PinScores();
        PinOperands(sums);
        ptx::FenceRegisters();
        MultiplyKeys();
        MultiplyValues(sums);
        ptx::WaitForProducts<1>();
        PinScores();
        memory_.ring.ReleaseAfterProducts(fill_);
        EditScores(first);
        Weigh(sums, parts, factors);
        // The compiler does not move the wait for products up past a loop, here the wait for the
        // ring. So the products overlap with the computation of weights above.
        ptx::PinRegisters(scores_);
        memory_.ring.WaitUntilFilled(fill_ + 1);
        ptx::WaitForProducts<0>();
        PinOperands(sums);
        memory_.ring.ReleaseAfterProducts(fill_ - 1);
      } else {
        if (is_pending) AddValuesWithCare(rows, first - kKeyTile, sums);
        memory_.ring.WaitUntilFilled(fill_);
        PinScores();
        ptx::FenceRegisters();
        MultiplyKeys();
        ptx::WaitForProducts<0>();
        PinScores();
        memory_.ring.ReleaseAfterProducts(fill_);
        EditScores(first);
        Weigh(sums, parts, factors);
        memory_.ring.WaitUntilFilled(fill_ + 1);
      }
      Scale(factors, sums);
      is_pending = true;
      fill_ += 2;
    }
    if (is_pending && seen_.HasAll(first - kKeyTile)) {
      AddValues(sums);
    } else if (is_pending) {
      AddValuesWithCare(rows, first - kKeyTile, sums);
    }
    for (; first < tiles.end; first += kKeyTile) SkipTile();
    AddUpWeights(parts, sums);
  }

  // Releases a tile of keys and values that only the other warpgroup needs. A lane that looks only
  // after the slot has been filled again would wait for ever, so none may be left behind.
  __device__ void SkipTile() {
    for (int i = 0; i < 2; ++i) {
      memory_.ring.WaitUntilFilled(fill_);
      __syncwarp();
      memory_.ring.ReleaseAfterProducts(fill_++);
    }
  }

  // Starts a group of products with the keys in fill_.
  __device__ void MultiplyKeys() {
    const uint8_t* const keys = memory_.stages[memory_.ring.Slot(fill_)];
#pragma unroll
    for (int k = 0; k < kKeyDim / kStep; ++k) {
      constexpr int kStripSteps = kStripDims / kStep;
      const uint64_t b = ptx::DescribeTile(
          keys + k / kStripSteps * kStripBytes + k % kStripSteps * kStep * 2, kRowBytes, 16, 1024);
      ptx::WarpgroupMultiplyBf16(scores_, queries_[k], b, k > 0);
    }
    ptx::CommitProducts();
  }

  // Pin the registers of the products that add up scores, and of those that add up values.
  __device__ void PinScores() {
    ptx::PinRegisters(scores_);
#pragma unroll
    for (int k = 0; k < kKeyDim / kStep; ++k) ptx::PinRegisters(queries_[k]);
  }
  __device__ void PinOperands(State& sums) {
    ptx::PinRegisters(sums.AllValues());
#pragma unroll
    for (int step = 0; step < kSteps; ++step) ptx::PinRegisters(weights_[step]);
  }
  // Starts a group of products with the values in fill_ - 1.
  __device__ void MultiplyValues(State& sums) {
    const uint8_t* const stage = memory_.stages[memory_.ring.Slot(fill_ - 1)];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t b =
          ptx::DescribeTile(stage + step * kStep * kRowBytes, kRowBytes, kStripBytes, 1024);
      ptx::WarpgroupMultiplyBf16<true>(sums.AllValues(), weights_[step], b, true);
    }
    ptx::CommitProducts();
  }

  // The score of row i and key 16 step + 8 half + lane % 4 · 2 + c of the tile.
  __device__ float& ScoreAt(int step, int half, int i, int c) {
    return scores_[4 * (2 * step + half) + 2 * i + c];
  }

  // Caps the scores of the tile from key `first` on, and hides those of keys that rows do not see.
  __device__ void EditScores(int first) {
    if (a_.softcap > 0) {
      const ScoreCap cap(a_);
#pragma unroll
      for (float& score : scores_) score = cap.Of(score);
    }
    if (!seen_.HasAll(first)) HideUnseen(first);
  }
  __device__ void HideUnseen(int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int at = 0; at < 4 * kSteps; ++at) {
        const int key = first + at / 2 * 8 + lane_ % 4 * 2 + at % 2;
        if (!seen_.Has(i, key)) ScoreAt(at / 4, at / 2 % 2, i, at % 2) = -INFINITY;
      }
    }
  }

  // Turns scores into weights; scores that are not finite give NaN. `factors` are those with which
  // Scale must still multiply the sums so far.
  __device__ void Weigh(State& sums, float (&parts)[kSteps][2], float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float highest = -INFINITY;
#pragma unroll
      for (int at = 0; at < 4 * kSteps; ++at) {
        highest = fmaxf(highest, ScoreAt(at / 4, at / 2 % 2, i, at % 2));
      }
      float base;
      factors[i] = sums.Raise(i, __fmul_rn(MaxOfRow(highest), scale_), base);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        float pairs[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float &low = ScoreAt(step, half, i, 0), &high = ScoreAt(step, half, i, 1);
          low = exp2f(fmaf(low, scale_, -base));
          high = exp2f(fmaf(high, scale_, -base));
          pairs[half] = __fadd_rn(low, high);
        }
        parts[step][i] = fmaf(parts[step][i], factors[i], __fadd_rn(pairs[0], pairs[1]));
      }
    }
  }
  // Scales the sums so far, and rounds the weights.
  __device__ void Scale(const float (&factors)[2], State& sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums.ScaleValues(i, factors[i]);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          weights_[step][2 * half + i] =
              PackBf16(ScoreAt(step, half, i, 0), ScoreAt(step, half, i, 1));
        }
      }
    }
  }

  __device__ void AddValues(State& sums) {
    PinOperands(sums);
    ptx::FenceRegisters();
    MultiplyValues(sums);
    ptx::WaitForProducts<0>();
    PinOperands(sums);
    memory_.ring.ReleaseAfterProducts(fill_ - 1);
  }
  // Adds the values of the tile from key `first` on, which some row does not see in full.
  __device__ void AddValuesWithCare(const Rows& rows, int first, State& sums) {
    const uint8_t* const stage = memory_.stages[memory_.ring.Slot(fill_ - 1)];
    const bool are_finite = AreFinite(stage);
    ptx::FenceAsyncProxy();  // orders the loads of AreFinite before the next fill of the slot
    if (are_finite) {
      AddValues(sums);
    } else {
      AddSeenValues(rows, first, stage, sums);
      memory_.ring.ReleaseAfterLoads(fill_ - 1);
    }
  }

  // Whether all values of a tile are finite; the same answer for the whole warpgroup.
  __device__ bool AreFinite(const uint8_t* stage) {
    const auto* const chunks = reinterpret_cast<const Four<uint32_t>*>(stage);
    bool any = false;
#pragma unroll
    for (int i = 0; i < kStageBytes<kValueDim> / 16 / kGroupThreads; ++i) {
      const Four<uint32_t> chunk = chunks[i * kGroupThreads + threadIdx.x % kGroupThreads];
      any |= HasNonFinite(chunk.values);
    }
    any = __any_sync(kAllLanes, any);
    bool(&flags)[kWarps] = memory_.non_finite[group_][checks_++ % 2];
    if (lane_ == 0) flags[warp_ % kWarps] = any;
    SyncGroup();
    return !(flags[0] || flags[1] || flags[2] || flags[3]);
  }

  // Each warp adds the values of keys that its rows see. Rare, so it loops over copies in memory,
  // which leaves the registers to the rest of the kernel.
  __device__ void AddSeenValues(const Rows& rows, int first, const uint8_t* stage, State& sums) {
    const int begin = warp_ * 16, end = min(begin + 16, rows.count);
    if (begin >= end) return;
    const int from = rows.FirstKey(begin), to = rows.LastKey(end - 1);
    const int matrix = lane_ / 8;
    float totals[S::kGroups][4];
    uint32_t weights[kSteps][4];
    CopyAll(sums.values, totals);
    CopyAll(weights_, weights);
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll 1
      for (int pair = 0; pair < kValueDim / kStep; ++pair) {
        uint32_t values[4];
        const int key = step * kStep + matrix % 2 * 8 + lane_ % 8;
        ptx::LoadMatricesTransposed(values, ChunkOf(stage, key, 2 * pair + matrix / 2));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t half[2] = {values[2 * j], values[2 * j + 1]};
          AddSeen(rows, begin, end, from, to, first + step * kStep, weights[step], half,
                  totals[2 * pair + j]);
        }
      }
    }
    CopyAll(totals, sums.values);
  }
  template <typename T, int kCount>
  static __device__ void CopyAll(const T (&from)[kCount][4], T (&to)[kCount][4]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) to[i][j] = from[i][j];
    }
  }

  // Adds up the lanes' sums of weights to the row's.
  __device__ void AddUpWeights(const float (&parts)[kSteps][2], State& sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const float part = SumOfRow(parts[step][i]);
        sums.sum[i] = step == 0 ? part : __fadd_rn(sums.sum[i], part);
      }
    }
  }

  const AttentionArgs& a_;
  typename S::Memory& memory_;
  const int group_, warp_, lane_;
  const float scale_;  // to units of log2
  SeenKeys seen_;
  // State of the merged splits. Their values are in shared memory.
  float highest_[2], sum_[2];
  uint32_t queries_[kKeyDim / kStep][4];  // bf16
  float scores_[kKeyTile / 2];
  uint32_t weights_[kSteps][4];  // bf16
  unsigned fill_ = 0, checks_ = 0;
};

// What a CTA does whose loading warps call Load of what make_loader(memory) returns.
template <typename S, bool kFp8, typename MakeLoader>
__device__ void RunCta(const AttentionArgs& a, const AttentionUnit* units, int count,
                       MakeLoader make_loader) {
  using Memory = typename S::Memory;
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto& memory = *reinterpret_cast<Memory*>(aligned);
  ptx::LaunchDependents();
  constexpr int kLoaders = kFp8 ? kFp8LoaderWarps : 1;
  if (threadIdx.x == 0) memory.ring.Init(kConsumers / kWarp, kLoaders);
  __syncthreads();
  ptx::WaitForKernelAhead();
  // Broadcast, so that the compiler knows that no warp diverges.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / kWarp), 0);
  if (warp >= kConsumers / kWarp) {
    ptx::GiveRegistersBack<kFp8 ? kFp8LoaderRegisters : kLoaderRegisters>();
    if (warp >= kConsumers / kWarp + kLoaders) return;
    auto loader = make_loader(memory);
    ForEachJob(a, units, count,
               [&](const AttentionUnit& unit, int kv_head, const AttentionUnit& next) {
                 loader.Load(unit, kv_head, next);
               });
  } else {
    ptx::TakeRegisters<kFp8 ? kFp8ComputerRegisters : kComputerRegisters>();
    Computer<S> computer(a, memory, warp);
    ForEachJob(a, units, count, [&](const AttentionUnit& unit, int kv_head, const AttentionUnit&) {
      if constexpr (S::kIsChunk) {
        computer.RunChunk(unit, kv_head);
      } else {
        computer.Run(unit, kv_head);
      }
    });
  }
}

__device__ const AttentionUnit* WideUnits(const AttentionArgs& a) {
  return reinterpret_cast<const AttentionUnit*>(a.plan + 1) + a.plan->num_units;
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    WideAttentionKernel(const __grid_constant__ CUtensorMap keys,
                        const __grid_constant__ CUtensorMap values,
                        const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    using S = Shape<kHeadDim>;
    RunCta<S, false>(a, WideUnits(a), a.plan->num_wide_units, [&](auto& memory) {
      return Loader<kHeadDim, typename S::Memory>(&keys, &values, a, memory);
    });
  }
}
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    Fp8WideAttentionKernel(const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    using S = Shape<kHeadDim>;
    RunCta<S, true>(a, WideUnits(a), a.plan->num_wide_units, [&](auto& memory) {
      return Fp8Loader<kHeadDim, 2, 1, true, typename S::Memory>(a, memory);
    });
  }
}
template <typename S>
__global__ void __launch_bounds__(kThreads, 1)
    ExpandedAttentionKernel(const __grid_constant__ CUtensorMap entries,
                            const __grid_constant__ CUtensorMap keys,
                            const __grid_constant__ CUtensorMap values,
                            const __grid_constant__ AttentionArgs a, const AttentionUnit* units,
                            int count) {
  if constexpr (ptx::kIsHopper) {
    RunCta<S, false>(a, units, count, [&](auto& memory) {
      return ChunkLoader<typename S::Memory>(&entries, &keys, &values, a, memory);
    });
  }
}

template <int kHeadDim>
cudaError_t Launch(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  constexpr size_t kBytes = sizeof(typename Shape<kHeadDim>::Memory);
  const auto launch = [&](auto kernel, const auto&... arguments) {
    const cudaError_t error = AllowSharedMemory(kernel, kBytes);
    if (error != cudaSuccess) return error;
    return LaunchGroups({.dependent = true}, kernel, static_cast<unsigned>(ctas), kThreads, kBytes,
                        stream, arguments..., args);
  };
  if (args.cache.dtype == DType::kF8E4M3) return launch(&Fp8WideAttentionKernel<kHeadDim>);
  return WithCacheMaps(args, [&](const CUtensorMap& keys, const CUtensorMap& values) {
    return launch(&WideAttentionKernel<kHeadDim>, keys, values);
  });
}

}  // namespace
}  // namespace mma_attention

cudaError_t LaunchWideAttention(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  if (!MmaAttentionReads(args.cache) || args.slopes != nullptr) return cudaErrorInvalidValue;
  return mma_attention::WithHeadDim(args.cache.head_dim, [&](auto dim) {
    constexpr int kHeadDim = decltype(dim)::value;
    if constexpr (HasWideAttention(kHeadDim)) {
      return mma_attention::Launch<kHeadDim>(args, ctas, stream);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

cudaError_t LaunchExpandedAttention(const AttentionArgs& args, const ExpandedChunk& chunk, int ctas,
                                    cudaStream_t stream) {
  using S = mma_attention::ExpandedShape;
  CUtensorMap entries;
  CUtensorMap keys;
  CUtensorMap values;
  if (!mma_attention::MapChunk(chunk, args.cache.num_kv_heads, &entries, &keys, &values)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = &mma_attention::ExpandedAttentionKernel<S>;
  const cudaError_t error = AllowSharedMemory(kernel, sizeof(S::Memory));
  if (error != cudaSuccess) return error;
  return LaunchGroups({.dependent = true}, kernel, static_cast<unsigned>(ctas),
                      mma_attention::kThreads, sizeof(S::Memory), stream, entries, keys, values,
                      args, chunk.units, chunk.num_units);
}

}  // namespace tokamak::cuda
