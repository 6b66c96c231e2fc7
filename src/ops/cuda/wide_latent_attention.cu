// Attention to latents by wgmma in tiles of up to 64 rows, for prompts (latent_attention.h). Bound:
// the tensor cores, and the L2, from which a tile of 72 KB comes for each 64 rows.
//
// A CTA takes units of up to 64 rows. One warp requests tiles of 64 latents by TMA, as in
// latent_attention.cu. Two warpgroups share all rows: each scores 32 of the tile's keys, then sums
// up 256 of the values' 512 dimensions over all 64, from the same bytes. Two barriers per tile
// exchange the highest scores and the weights. wgmma reads queries and weights from shared memory,
// because the sums of a split take 128 of a thread's registers.
//
// Shared memory is 226 KB: two tiles, the queries (72 KB) and the weights (8 KB). While one tile is
// computed the other arrives. That leaves no room for the sums of merged splits, another 128 KB.
// They are in global memory (AttentionArgs::totals), where each CTA finds its own in the L2. A unit
// of one split needs none.
//
// A row adds values that are not finite only where it sees them, as in wide_attention.cu.
#include <cstdint>

#include "ops/cuda/attention_splits.cuh"
#include "ops/cuda/fp8_attention_tiles.cuh"
#include "ops/cuda/latent_attention.h"
#include "ops/cuda/latent_attention_tiles.cuh"
#include "ops/cuda/mma_attention_rows.cuh"
#include "ops/cuda/mma_attention_tiles.cuh"
#include "ops/cuda/mma_attention_weights.cuh"

namespace tokamak::cuda {
namespace mma_attention {
namespace {

constexpr int kWarpgroups = 2;
constexpr int kWarps = 4;  // of a warpgroup
constexpr int kGroupThreads = kWarps * kWarp;
constexpr int kConsumers = kWarpgroups * kGroupThreads;
constexpr int kThreads = kConsumers + kGroupThreads;  // one warp of the last warpgroup loads bf16
// Registers of a thread: see wide_attention.cu.
constexpr int kLoaderRegisters = 24, kComputerRegisters = 240;
constexpr int kFp8LoaderRegisters = 56, kFp8ComputerRegisters = 224;
static_assert(kThreads == kConsumers + kFp8LoaderThreads);
constexpr int kGroupKeys = kKeyTile / kWarpgroups;   // that a warpgroup scores
constexpr int kGroupDims = kValueDim / kWarpgroups;  // of the values, that it adds up
constexpr int kGroupStrips = kGroupDims / kStripDims;
constexpr int kGroups = kGroupDims / 8;     // of 8 columns
constexpr int kSteps = kGroupKeys / kStep;  // of keys that a warpgroup scores
constexpr int kFirstValueStrip = (kKeyDim - kValueDim) / kStripDims;
constexpr unsigned kStages = 2;
static_assert(kWideLatentRows == 64);      // of a wgmma
static_assert(kKeyTile * 2 == kRowBytes);  // a row of weights is a swizzled row

struct alignas(SwizzleAligned) WideLatentMemory {
  uint8_t stages[kStages][kLatentTileBytes];
  // bf16, swizzled as the latents are. Weights: [row, key of the tile].
  uint8_t queries[kLatentStrips][kWideLatentRows * kRowBytes];
  uint8_t weights[kWideLatentRows * kRowBytes];
  float highest[kWarpgroups][kWideLatentRows];
  float sums[kKeyTile / kStep][kWideLatentRows];
  RingBarriers<kStages> ring;
  // Whether each warp saw values that are not finite. Two sets take turns, as in wide_attention.cu.
  bool non_finite[kWarpgroups][2][kWarps];
  bool is_last;
};
static_assert(sizeof(WideLatentMemory) <= 227 << 10);
static_assert(sizeof(Four<float>) * kGroups * kConsumers == kWideLatentBytes);

// The work of a computing warpgroup. Lanes have rows and columns as in mma_attention_rows.cuh.
class WideLatentComputer {
 public:
  using State = Sums<kGroups>;
  using Part = Place<kValueDim, kWideLatentRows, kGroups>;

  // The compiler must know that `warp` is equal in all lanes (a result of __shfl_sync).
  __device__ WideLatentComputer(const AttentionArgs& a, WideLatentMemory& memory, int warp)
      : a_(a),
        memory_(memory),
        group_(warp / kWarps),
        warp_(warp % kWarps),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        scale_(a.scale * kLog2E),
        totals_(reinterpret_cast<Four<float>*>(a.totals + blockIdx.x * kWideLatentBytes) +
                threadIdx.x) {
#pragma unroll
    for (float& score : scores_) score = 0;
  }

  __device__ void Run(const AttentionUnit& unit) {
    const Part part = {.a = a_,
                       .kv_head = 0,
                       .first_row = RowOf(0),
                       .first_dim = group_ * kGroupDims + lane_ % 4 * 2,
                       .writes_state = group_ == 0 && lane_ % 4 == 0};
    const Rows rows(a_, unit);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      first_key_[i] = rows.FirstKey(RowOf(i));
      last_key_[i] = rows.LastKey(RowOf(i));
    }
    LoadQueries(rows);
    SyncComputers();
    State sums;
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      ComputeSplit(rows, split, sums);
      if (unit.IsPart()) {
        part.WritePartial(unit, rows, split, sums);
      } else {
        MergeTotals(unit, split, sums);
      }
    }
    if (unit.IsPart()) {
      const auto sync = [this] { SyncComputers(); };
      if (!IsLastPart(a_, unit, 0, memory_.is_last, sync)) return;
      for (int split = unit.begin_split; split < unit.end_split; ++split) {
        part.LoadPartial(unit, split, 0, sums);
        part.LoadPartial(unit, split, 1, sums);
        MergeTotals(unit, split, sums);
      }
    }
    part.Write(rows, sums);
  }

 private:
  __device__ int RowOf(int i) const { return warp_ * 16 + lane_ / 4 + 8 * i; }
  __device__ void SyncComputers() { ptx::SyncNamed(1, kConsumers); }
  __device__ void SyncGroup() { ptx::SyncNamed(2 + group_, kGroupThreads); }

  // Returns where 16 bytes of a row lie in swizzled rows.
  __device__ static uint8_t* ChunkIn(uint8_t* rows, int row, int chunk) {
    return rows + row * kRowBytes + (chunk ^ (row % 8)) * 16;
  }

  // All warps have left the last unit's queries behind: its last barrier came after their use.
  __device__ void LoadQueries(const Rows& rows) {
    const bool chunks_fit = QueryEightsFit(a_);
    const bool pairs_fit = QueryPairsFit(a_);
    constexpr int kAllWarps = kWarpgroups * kWarps;
#pragma unroll 1
    for (int row = group_ * kWarps + warp_; row < kWideLatentRows; row += kAllWarps) {
      const bool is_row = row < rows.count;
      const int64_t token = rows.Token(is_row ? row : 0);
      const int64_t first = int64_t{rows.HeadInGroup(is_row ? row : 0)} * kKeyDim;
      for (int chunk = lane_; chunk < kKeyDim / 8; chunk += kWarp) {
        uint8_t* const to = ChunkIn(memory_.queries[chunk / 8], row, chunk % 8);
        const int64_t at = first + chunk * 8;
        if (chunks_fit) {
          const auto* const q = static_cast<const uint16_t*>(a_.q) + token * a_.q_stride + at;
          ptx::CopyAsync16(to, q, is_row ? 16 : 0);
          continue;
        }
        Four<uint32_t> values;
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const uint32_t pair = QueryPair(a_, token, at + 2 * p, pairs_fit);
          values.values[p] = is_row ? pair : 0;
        }
        *reinterpret_cast<Four<uint32_t>*>(to) = values;
      }
    }
    ptx::CommitCopies();
    ptx::WaitForCopies<0>();
    ptx::FenceAsyncProxy();
  }

  // Computes the sums of a split; the sums of weights are complete in every warp.
  __device__ void ComputeSplit(const Rows& rows, int split, State& sums) {
    sums.Clear();
    float parts[kSteps][2] = {};
    const KeyTiles tiles(rows, split);
    const SeenInSplit seen(rows, tiles);
    for (int first = tiles.begin; first < tiles.end; first += kKeyTile) {
      const bool all_seen = seen.All(first, kKeyTile);
      memory_.ring.WaitUntilFilled(fill_);
      uint8_t* const latents = memory_.stages[memory_.ring.Slot(fill_)];
      Score(latents);
      if (!all_seen) HideUnseen(first);
      Weigh(sums, parts);
      if (all_seen || AreFinite(latents)) {
        AddValues(latents, sums);
        memory_.ring.ReleaseAfterProducts(fill_);
      } else {
        AddSeenValues(rows, first, latents, sums);
        memory_.ring.ReleaseAfterLoads(fill_);
      }
      ++fill_;
    }
    AddUpWeights(parts, sums);
  }

  // Computes the scores of the rows and the warpgroup's keys.
  __device__ void Score(const uint8_t* latents) {
    const uint64_t a = ptx::DescribeTile(memory_.queries[0], kRowBytes, 16, 1024);
    const uint64_t b =
        ptx::DescribeTile(latents + group_ * kGroupKeys * kRowBytes, kRowBytes, 16, 1024);
    ptx::PinRegisters(scores_);
    ptx::FenceRegisters();
#pragma unroll
    for (int strip = 0; strip < kLatentStrips; ++strip) {
#pragma unroll
      for (int k = 0; k < kStripDims / kStep; ++k) {
        // A descriptor counts units of 16 bytes.
        const uint64_t in_a = (strip * sizeof(memory_.queries[0]) + k * kStep * 2) / 16;
        const uint64_t in_b = (strip * kStripBytes + k * kStep * 2) / 16;
        ptx::WarpgroupMultiplyBf16(scores_, a + in_a, b + in_b, strip + k > 0);
      }
    }
    ptx::CommitProducts();
    ptx::WaitForProducts<0>();
    ptx::PinRegisters(scores_);
  }

  // The score of row i and the warpgroup's key 16 step + 8 half + lane % 4 · 2 + c.
  __device__ float& ScoreAt(int step, int half, int i, int c) {
    return scores_[4 * (2 * step + half) + 2 * i + c];
  }

  __device__ void HideUnseen(int first) {
    const int first_column = first + group_ * kGroupKeys + lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int at = 0; at < 4 * kSteps; ++at) {
        const int key = first_column + at / 2 * 8 + at % 2;
        if (key < first_key_[i] || key > last_key_[i]) {
          ScoreAt(at / 4, at / 2 % 2, i, at % 2) = -INFINITY;
        }
      }
    }
  }

  // Turns scores into weights, in shared memory for both warpgroups, and scales the sums so far to
  // the highest score. Scores that are not finite give NaN.
  __device__ void Weigh(State& sums, float (&parts)[kSteps][2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float highest = -INFINITY;
#pragma unroll
      for (int at = 0; at < 4 * kSteps; ++at) {
        highest = fmaxf(highest, ScoreAt(at / 4, at / 2 % 2, i, at % 2));
      }
      highest = MaxOfRow(highest);
      if (lane_ % 4 == 0) memory_.highest[group_][RowOf(i)] = highest;
    }
    // Both warpgroups have also left the last tile's weights behind.
    SyncComputers();
    float factors[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float highest = fmaxf(memory_.highest[0][RowOf(i)], memory_.highest[1][RowOf(i)]);
      float base;
      factors[i] = sums.Raise(i, __fmul_rn(highest, scale_), base);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        float pairs[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float low = exp2f(fmaf(ScoreAt(step, half, i, 0), scale_, -base));
          const float high = exp2f(fmaf(ScoreAt(step, half, i, 1), scale_, -base));
          pairs[half] = __fadd_rn(low, high);
          const int chunk = group_ * (kGroupKeys / 8) + 2 * step + half;
          uint8_t* const to = ChunkIn(memory_.weights, RowOf(i), chunk) + lane_ % 4 * 4;
          *reinterpret_cast<uint32_t*>(to) = PackBf16(low, high);
        }
        parts[step][i] = fmaf(parts[step][i], factors[i], __fadd_rn(pairs[0], pairs[1]));
      }
    }
    ptx::FenceAsyncProxy();  // orders the weights before the products that read them
#pragma unroll
    for (int i = 0; i < 2; ++i) sums.ScaleValues(i, factors[i]);
    SyncComputers();
  }

  __device__ void AddValues(const uint8_t* latents, State& sums) {
    const uint8_t* const values = GroupValues(latents);
    ptx::PinRegisters(sums.AllValues());
    ptx::FenceRegisters();
#pragma unroll
    for (int step = 0; step < kKeyTile / kStep; ++step) {
      const uint64_t a = ptx::DescribeTile(memory_.weights + step * kStep * 2, kRowBytes, 16, 1024);
      const uint64_t b =
          ptx::DescribeTile(values + step * kStep * kRowBytes, kRowBytes, kStripBytes, 1024);
      ptx::WarpgroupMultiplyBf16<true>(sums.AllValues(), a, b, true);
    }
    ptx::CommitProducts();
    ptx::WaitForProducts<0>();
    ptx::PinRegisters(sums.AllValues());
  }
  // The strips that have the warpgroup's columns of the values.
  __device__ const uint8_t* GroupValues(const uint8_t* latents) const {
    return latents + (kFirstValueStrip + group_ * kGroupStrips) * kStripBytes;
  }

  // Whether all of the warpgroup's values are finite; the same answer for all of it.
  __device__ bool AreFinite(const uint8_t* latents) {
    const auto* const chunks = reinterpret_cast<const Four<uint32_t>*>(GroupValues(latents));
    bool any = false;
#pragma unroll 4
    for (int i = 0; i < kGroupStrips * kStripBytes / 16 / kGroupThreads; ++i) {
      const Four<uint32_t> chunk = chunks[i * kGroupThreads + threadIdx.x % kGroupThreads];
      any |= HasNonFinite(chunk.values);
    }
    any = __any_sync(kAllLanes, any);
    bool(&flags)[kWarps] = memory_.non_finite[group_][checks_++ % 2];
    if (lane_ == 0) flags[warp_] = any;
    ptx::FenceAsyncProxy();  // orders these loads before the next fill of the slot
    SyncGroup();
    return !(flags[0] || flags[1] || flags[2] || flags[3]);
  }
  // Each warp adds the values of keys that its rows see. Rare, so it loops over a copy of the sums
  // in memory, which leaves the registers to the rest of the kernel.
  __device__ void AddSeenValues(const Rows& rows, int first, const uint8_t* latents, State& sums) {
    const int begin = warp_ * 16, end = min(begin + 16, rows.count);
    if (begin >= end) return;
    const int from = rows.FirstKey(begin), to = rows.LastKey(end - 1);
    const int matrix = lane_ / 8;
    const int row = matrix % 2 * 8 + lane_ % 8;  // of the weights; along the step, of the values
    float copy[kGroups][4];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) copy[j][c] = sums.values[j][c];
    }
#pragma unroll 1
    for (int step = 0; step < kKeyTile / kStep; ++step) {
      uint32_t weights[4];
      ptx::LoadMatrices(weights, ChunkIn(memory_.weights, begin + row, 2 * step + matrix / 2));
#pragma unroll 1
      for (int pair = 0; pair < kGroups / 2; ++pair) {
        const int chunk = kFirstValueChunk + group_ * kGroups + 2 * pair + matrix / 2;
        uint32_t values[4];
        ptx::LoadMatricesTransposed(values, ChunkOf(latents, step * kStep + row, chunk));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t half[2] = {values[2 * j], values[2 * j + 1]};
          AddSeen(rows, begin, end, from, to, first + step * kStep, weights, half,
                  copy[2 * pair + j]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sums.values[j][c] = copy[j][c];
    }
  }

  // Adds up the lanes' sums of weights to the row's.
  __device__ void AddUpWeights(const float (&parts)[kSteps][2], State& sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const float part = SumOfRow(parts[step][i]);
        if (lane_ % 4 == 0) memory_.sums[group_ * kSteps + step][RowOf(i)] = part;
      }
    }
    SyncComputers();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = memory_.sums[0][RowOf(i)];
#pragma unroll
      for (int g = 1; g < kKeyTile / kStep; ++g) sum = __fadd_rn(sum, memory_.sums[g][RowOf(i)]);
      sums.sum[i] = sum;
    }
  }

  // Merges the totals of the unit's earlier splits into the sums of `split`, and stores the result
  // as totals if the unit has later splits.
  __device__ void MergeTotals(const AttentionUnit& unit, int split, State& sums) {
    bool is_first[2], is_seen[2];
    MergeFactors factors[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      is_first[i] = split <= first_key_[i] / kSplitKeys;
      is_seen[i] = split <= last_key_[i] / kSplitKeys;
      if (is_first[i]) {
        highest_[i] = sums.highest[i];
        sum_[i] = sums.sum[i];
      } else if (is_seen[i]) {
        factors[i] = MergeWeights(highest_[i], sum_[i], sums.highest[i], sums.sum[i]);
      }
      sums.highest[i] = highest_[i];
      sums.sum[i] = sum_[i];
    }
    if (split > unit.begin_split) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const Four<float> totals = totals_[j * kConsumers];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          // Selected without branches, which would take more registers.
          float& value = sums.values[j][c];
          const float total = totals.values[c];
          const float merged = MergeValues(factors[c / 2], total, value);
          value = is_first[c / 2] ? value : is_seen[c / 2] ? merged : total;
        }
      }
    }
    if (split + 1 < unit.end_split) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const float(&v)[4] = sums.values[j];
        totals_[j * kConsumers] = {v[0], v[1], v[2], v[3]};
      }
    }
  }

  const AttentionArgs& a_;
  WideLatentMemory& memory_;
  const int group_, warp_, lane_;
  const float scale_;               // to units of log2
  Four<float>* const totals_;       // the thread's, of group j of its columns at j · kConsumers
  int first_key_[2], last_key_[2];  // that the lane's rows see
  // State of the merged splits.
  float highest_[2], sum_[2];
  float scores_[kGroupKeys / 2];
  unsigned fill_ = 0, checks_ = 0;
};

// What a CTA does whose loading warps call Load of what make_loader(memory) returns.
template <bool kFp8, typename MakeLoader>
__device__ void RunOnLatents(const AttentionArgs& a, MakeLoader make_loader) {
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto& memory = *reinterpret_cast<WideLatentMemory*>(aligned);
  ptx::LaunchDependents();
  constexpr int kLoaders = kFp8 ? kFp8LoaderWarps : 1;
  if (threadIdx.x == 0) memory.ring.Init(kConsumers / kWarp, kLoaders);
  __syncthreads();
  const auto* const units = reinterpret_cast<const AttentionUnit*>(a.plan + 1);
  const auto* const wide = units + a.plan->num_units;
  const int num_wide = a.plan->num_wide_units;
  // Broadcast, so that the compiler knows that no warp diverges.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / kWarp), 0);
  if (warp >= kConsumers / kWarp) {
    ptx::GiveRegistersBack<kFp8 ? kFp8LoaderRegisters : kLoaderRegisters>();
    if (warp >= kConsumers / kWarp + kLoaders) return;
    auto loader = make_loader(memory);
    ForEachJob(a, wide, num_wide, [&](const AttentionUnit& unit, int, const AttentionUnit& next) {
      loader.Load(unit, 0, next);
    });
  } else {
    ptx::TakeRegisters<kFp8 ? kFp8ComputerRegisters : kComputerRegisters>();
    ptx::WaitForKernelAhead();
    WideLatentComputer computer(a, memory, warp);
    ForEachJob(a, wide, num_wide,
               [&](const AttentionUnit& unit, int, const AttentionUnit&) { computer.Run(unit); });
  }
}

// Templates, so that their bodies are left out for GPUs before Hopper.
template <int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    WideLatentAttentionKernel(const __grid_constant__ CUtensorMap latents,
                              const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    RunOnLatents<false>(a, [&](auto& memory) { return LatentLoader(&latents, a, memory); });
  }
}
template <int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    Fp8WideLatentAttentionKernel(const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    RunOnLatents<true>(
        a, [&](auto& memory) { return Fp8Loader<kDim, 1, 6, true, WideLatentMemory>(a, memory); });
  }
}

}  // namespace
}  // namespace mma_attention

cudaError_t LaunchWideLatentAttention(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  if (args.totals == nullptr) return cudaErrorInvalidValue;
  return mma_attention::LaunchOnLatents(
      &mma_attention::WideLatentAttentionKernel<mma_attention::kKeyDim>, mma_attention::kThreads,
      &mma_attention::Fp8WideLatentAttentionKernel<mma_attention::kKeyDim>, mma_attention::kThreads,
      sizeof(mma_attention::WideLatentMemory), args, ctas, stream);
}

}  // namespace tokamak::cuda
