// Attention to latents by mma.sync (latent_attention.h). Bound: the bytes of the latents, each read
// once per tile of 16 rows. Several tiles of a sequence (64 or 128 heads) run side by side and find
// most of them in the L2.
//
// A CTA takes units of up to 16 rows. One warp requests tiles of 64 latents by TMA: a box per block
// of the cache and 64 elements, in rows of 128 swizzled bytes. Eight warps share a tile. Four of
// them score 16 keys each; then each sums up 64 of the values' 512 dimensions over all of them,
// from the same bytes. Two barriers per tile exchange the highest scores and the weights. Queries
// are in shared memory, because a warp would need 144 registers for them, and so are the sums of
// merged splits. A split's sums are in registers, as in mma_attention.cu.
//
// Of a cache in FP8, four warps load instead (fp8_attention_tiles.cuh).
//
// Shared memory is 203 KB, for two tiles and these. While one tile is computed the other arrives,
// which covers the latency, because a tile has 72 KB.
//
// On GPUs without TMA the loading warp copies by cp.async (lane_attention_tiles.cuh). Shared memory
// is 93 KB there, or 147 KB on GPUs that have it. So it holds a tile, or two but for a quarter, and
// a quarter of a tile makes room for the next one when its values have been added. The sums of
// merged splits are in registers.
#include "ops/cuda/latent_attention.h"

#include <bit>
#include <type_traits>

#include "ops/cuda/attention_splits.cuh"
#include "ops/cuda/fp8_attention_tiles.cuh"
#include "ops/cuda/kernel_form.h"
#include "ops/cuda/lane_attention_tiles.cuh"
#include "ops/cuda/latent_attention_tiles.cuh"
#include "ops/cuda/mma_attention_rows.cuh"
#include "ops/cuda/mma_attention_tiles.cuh"
#include "ops/cuda/mma_attention_weights.cuh"
#include "ops/cuda/shared_bytes.h"

namespace tokamak::cuda {
namespace mma_attention {
namespace {

constexpr int kWarps = 8;  // that compute
constexpr int kScorers = 4;
constexpr int kConsumers = kWarps * kWarp;
constexpr int kThreads = kConsumers + kWarp;
constexpr int kFp8Threads = kConsumers + kFp8LoaderThreads;
// Registers of a thread, for a cache in FP8: see mma_attention.cu.
constexpr int kFp8LoaderRegisters = 120, kFp8ComputerRegisters = 192;
constexpr int kWarpDims = kValueDim / kWarps;
constexpr int kPairs = kWarpDims / kStep;  // pairs of 8 columns of values, per warp
constexpr int kQueryStripBytes = kTileRows * kRowBytes;

using State = Sums<2 * kPairs>;

// The totals of merged splits of each thread: {highest, sum} of its rows, and values.
struct SharedTotals {
  Four<float> states[kConsumers];
  Four<float> values[2 * kPairs][kConsumers];
};
struct NoTotals {};

// A slot of the ring has a tile, or without TMA a quarter of one: the 16 keys that a warp scores.
template <KernelForm kForm, unsigned kRingSlots>
struct alignas(SwizzleAligned) LatentMemory {
  static constexpr bool kIsHopper = kForm == KernelForm::kHopper;
  static constexpr int kSlotKeys = kIsHopper ? kKeyTile : kStep;
  static constexpr unsigned kTileSlots = kKeyTile / kSlotKeys;
  static constexpr unsigned kSlots = kRingSlots;
  static constexpr int kSlotStripBytes = kSlotKeys * kRowBytes;
  static_assert(kSlots >= kTileSlots && kScorers * kStep == kKeyTile);

  uint8_t stages[kSlots][kLatentStrips * kSlotStripBytes];
  uint8_t queries[kLatentStrips][kQueryStripBytes];  // bf16, swizzled as the keys are
  // bf16; padded, so that ldmatrix meets no bank twice.
  alignas(16) uint16_t weights[kTileRows][kKeyTile + 8];
  std::conditional_t<kIsHopper, SharedTotals, NoTotals> totals;
  float highest[kScorers][kTileRows];
  float sums[kScorers][kTileRows];
  RingBarriers<kSlots> ring;
  bool is_last;
};
using HopperMemory = LatentMemory<KernelForm::kHopper, 2>;
using AmpereMemory = LatentMemory<KernelForm::kAmpere, 7>;
using SmallAmpereMemory = LatentMemory<KernelForm::kAmpere, 4>;
static_assert(sizeof(HopperMemory) <= 227 << 10 && sizeof(AmpereMemory) <= 163 << 10 &&
              sizeof(SmallAmpereMemory) <= 99 << 10);

// The work of the computing warps.
template <typename Memory>
class LatentComputer : TileComputer<Memory, kWarps, kScorers> {
 public:
  using Base = TileComputer<Memory, kWarps, kScorers>;
  using Part = Place<kValueDim, kTileRows, 2 * kPairs>;

  __device__ LatentComputer(const AttentionArgs& a, Memory& memory) : Base(a, memory) {}

  __device__ void Run(const AttentionUnit& unit) {
    const Part part = {.a = a_,
                       .kv_head = 0,
                       .first_row = RowOf(0),
                       .first_dim = warp_ * kWarpDims + lane_ % 4 * 2,
                       .writes_state = warp_ == 0 && lane_ % 4 == 0};
    const Rows rows(a_, unit);
    this->TakeKeys(rows);
    ptx::WaitForKernelAhead();
    LoadQueries(rows);
    SyncComputers();
    State sums;
    if constexpr (!kIsHopper) total_.Clear();
    const bool is_one = unit.end_split == unit.begin_split + 1;
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      ComputeSplit(rows, split, sums);
      if (unit.IsPart()) {
        part.WritePartial(unit, rows, split, sums);
      } else if (!is_one) {
        TakeIn(rows, split, sums);
      }
    }
    if (unit.IsPart()) {
      const auto sync = [this] { SyncComputers(); };
      if (!IsLastPart(a_, unit, 0, memory_.is_last, sync)) return;
      part.MergePartials(unit, rows, sums);
    } else if (!is_one) {
      LoadTotal(sums);
    }
    part.Write(rows, sums);
  }

 private:
  using Base::a_;
  using Base::first_key_;
  using Base::IsScorer;
  using Base::lane_;
  using Base::last_key_;
  using Base::memory_;
  using Base::RowOf;
  using Base::SyncComputers;
  using Base::warp_;
  static constexpr bool kIsHopper = Memory::kIsHopper;

  // Returns where 16 bytes of a query lie: chunk number `chunk` of a row.
  __device__ uint8_t* QueryChunk(int row, int chunk) {
    return memory_.queries[chunk / 8] + row * kRowBytes + ((chunk % 8) ^ (row % 8)) * 16;
  }

  // All warps have left the last unit's queries behind: its last barrier came after their use.
  __device__ void LoadQueries(const Rows& rows) {
    const bool chunks_fit = QueryEightsFit(a_), pairs_fit = QueryPairsFit(a_);
    constexpr int kChunks = kKeyDim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kChunks; i += kConsumers) {
      const int row = i / kChunks, chunk = i % kChunks;
      Four<uint32_t> pairs = {};
      if (row < rows.count) {
        const int64_t token = rows.Token(row);
        const int64_t first = int64_t{rows.HeadInGroup(row)} * kKeyDim + chunk * 8;
        if (chunks_fit) {
          const auto* const q = static_cast<const uint16_t*>(a_.q) + token * a_.q_stride + first;
          pairs = *reinterpret_cast<const Four<uint32_t>*>(q);
        } else {
#pragma unroll
          for (int p = 0; p < 4; ++p) {
            pairs.values[p] = QueryPair(a_, token, first + 2 * p, pairs_fit);
          }
        }
      }
      *reinterpret_cast<Four<uint32_t>*>(QueryChunk(row, chunk)) = pairs;
    }
  }

  // Computes the sums of a split; the sums of weights are complete in every warp.
  __device__ void ComputeSplit(const Rows& rows, int split, State& sums) {
    sums.Clear();
    const KeyTiles tiles(rows, split);
    const SeenInSplit seen(rows, tiles);
    for (int first = tiles.begin; first < tiles.end; first += kKeyTile) {
      if constexpr (kIsHopper) {
        memory_.ring.WaitUntilFilled(fill_);
      } else if (IsScorer()) {
        // The scorers wait for all of the tile. The others learn from them that it is there.
        memory_.ring.WaitUntilFilled(fill_ + static_cast<unsigned>(warp_));
      }
      const uint8_t* const latents = memory_.stages[memory_.ring.Slot(fill_)];
      float scores[2][4];
      if (IsScorer()) Score(latents, scores);
      this->Weigh(rows, first, scores, sums);
      AddValues(rows, seen, first, latents, sums);
      if constexpr (kIsHopper) memory_.ring.ReleaseAfterLoads(fill_);
      fill_ += Memory::kTileSlots;
    }
    this->AddUpWeights(sums);
  }
  // Returns where 16 bytes of the tile lie: chunk number `chunk` of a key. `latents` is its first
  // slot.
  __device__ const uint8_t* LatentChunk(const uint8_t* latents, int key, int chunk) const {
    if constexpr (!kIsHopper) {
      const auto slot = static_cast<unsigned>(key / Memory::kSlotKeys);
      latents = memory_.stages[memory_.ring.Slot(fill_ + slot)];
      key %= Memory::kSlotKeys;
    }
    return ChunkOf<Memory::kSlotStripBytes>(latents, key, chunk);
  }
  // Releases the keys [16 k, 16 k + 16), if they are a slot.
  __device__ void Release(int k) {
    if constexpr (!kIsHopper) memory_.ring.ReleaseToThreads(fill_ + static_cast<unsigned>(k));
  }

  // Computes scores[j]: those of the rows and the warp's keys [8 j, 8 j + 8).
  __device__ void Score(const uint8_t* latents, float (&scores)[2][4]) {
#pragma unroll
    for (int c = 0; c < 4; ++c) scores[0][c] = scores[1][c] = 0;
    const int matrix = lane_ / 8;
    const int row = matrix % 2 * 8 + lane_ % 8;
    const int key = warp_ * kStep + matrix / 2 * 8 + lane_ % 8;
    // By strips, within which the places of chunks repeat.
#pragma unroll 1
    for (int strip = 0; strip < kLatentStrips; ++strip) {
#pragma unroll
      for (int k = 0; k < kStripDims / kStep; ++k) {
        uint32_t query[4], b[4];
        ptx::LoadMatrices(query, QueryChunk(row, 2 * k + matrix / 2) + strip * kQueryStripBytes);
        ptx::LoadMatrices(b, LatentChunk(latents, key, 2 * k + matrix % 2) +
                                 strip * Memory::kSlotStripBytes);
        ptx::MultiplyBf16(scores[0], query, {b[0], b[1]});
        ptx::MultiplyBf16(scores[1], query, {b[2], b[3]});
      }
    }
  }

  // Adds the values of the tile that begins at key `first`.
  __device__ void AddValues(const Rows& rows, const SeenInSplit& seen, int first,
                            const uint8_t* latents, State& sums) {
    if (seen.All(first, kKeyTile)) {
#pragma unroll
      for (int k = 0; k < kKeyTile / kStep; ++k) {
        uint32_t weights[4], values[2 * kPairs][2];
        LoadStep(k, latents, weights, values);
        Multiply(weights, values, sums);
        Release(k);
      }
    } else {
      // Rolled up: in a short kernel, instructions that are not in the cache take long.
#pragma unroll 1
      for (int k = seen.BeginStep(first); k < seen.EndStep(first); ++k) {
        AddSeen(rows, seen, first + k * kStep, k, latents, sums);
      }
      for (int k = 0; k < kKeyTile / kStep; ++k) Release(k);
    }
  }
  // Loads the weights and values of 16 keys of the tile.
  __device__ void LoadStep(int k, const uint8_t* latents, uint32_t (&weights)[4],
                           uint32_t (&values)[2 * kPairs][2]) {
    const int matrix = lane_ / 8;
    const int row = matrix % 2 * 8 + lane_ % 8;  // of the weights; along k, of the values
    ptx::LoadMatrices(weights, &memory_.weights[row][k * kStep + matrix / 2 * 8]);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int chunk = kFirstValueChunk + warp_ * (kWarpDims / 8) + 2 * pair + matrix / 2;
      uint32_t both[4];
      ptx::LoadMatricesTransposed(both, LatentChunk(latents, k * kStep + row, chunk));
#pragma unroll
      for (int c = 0; c < 4; ++c) values[2 * pair + c / 2][c % 2] = both[c];
    }
  }
  __device__ static void Multiply(const uint32_t (&weights)[4],
                                  const uint32_t (&values)[2 * kPairs][2], State& sums) {
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) ptx::MultiplyBf16(sums.values[n], weights, values[n]);
  }
  // Like AddSeen of mma_attention_rows.cuh, for all of the warp's columns: each key in [seen.from,
  // seen.to] is seen by some row, and values of other keys may be anything. Of values that are not
  // finite, each row, one after the other, adds only those that it sees. Rare.
  __device__ void AddSeen(const Rows& rows, const SeenInSplit& seen, int first, int k,
                          const uint8_t* latents, State& sums) {
    uint32_t weights[4], values[2 * kPairs][2];
    LoadStep(k, latents, weights, values);
    bool non_finite = false;
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) {
      KeepSeen(first, seen.from, seen.to, values[n]);
      non_finite |= HasNonFinite(values[n]);
    }
    if (!__any_sync(kAllLanes, non_finite)) {
      Multiply(weights, values, sums);
      return;
    }
#pragma unroll 1
    for (int row = 0; row < rows.count; ++row) {
      const int low = rows.FirstKey(row), high = rows.LastKey(row);
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n) {
        uint32_t its[2] = {values[n][0], values[n][1]};
        KeepSeen(first, low, high, its);
        float(&to)[4] = sums.values[n];
        float products[4] = {to[0], to[1], to[2], to[3]};
        ptx::MultiplyBf16(products, weights, its);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (RowOf(c / 2) == row) to[c] = products[c];
        }
      }
    }
  }

  // Merges a split into the totals.
  __device__ void TakeIn(const Rows& rows, int split, const State& sums) {
    if constexpr (kIsHopper) {
      Four<float>& state = memory_.totals.states[threadIdx.x];
      float highest[2] = {state.values[0], state.values[1]};
      float sum[2] = {state.values[2], state.values[3]};
      TakeIntoTotals(split, first_key_, last_key_, sums, highest, sum, memory_.totals.values);
      state = {highest[0], highest[1], sum[0], sum[1]};
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) total_.TakeIn(rows, RowOf(i), split, i, sums);
    }
  }
  __device__ void LoadTotal(State& sums) const {
    if constexpr (kIsHopper) {
      const Four<float> state = memory_.totals.states[threadIdx.x];
      LoadTotals({state.values[0], state.values[1]}, {state.values[2], state.values[3]},
                 memory_.totals.values, sums);
    } else {
      sums = total_;
    }
  }

  unsigned fill_ = 0;
  std::conditional_t<kIsHopper, NoTotals, State> total_;
};

// What a CTA does whose loading warps call Load of what make_loader(memory) returns. CTAs without a
// unit end at once; there are many if sequences are few. Loader says why the plan may be read so
// early. One thread of the grid must still wait for the kernel ahead.
template <typename Memory, bool kFp8, typename MakeLoader>
__device__ void RunOnLatents(const AttentionArgs& a, MakeLoader make_loader) {
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto& memory = *reinterpret_cast<Memory*>(aligned);
  ptx::LaunchDependents();
  const auto* const units = reinterpret_cast<const AttentionUnit*>(a.plan + 1);
  const int num_units = a.plan->num_units;
  if (static_cast<int>(blockIdx.x) >= num_units) {
    if (blockIdx.x == 0) ptx::WaitForKernelAhead();
    return;
  }
  constexpr int kWriters = kFp8 ? kFp8LoaderWarps : Memory::kIsHopper ? 1 : kWarp;
  if (threadIdx.x == 0) memory.ring.Init(kWarps, kWriters);
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if constexpr (kFp8 && Memory::kIsHopper) ptx::GiveRegistersBack<kFp8LoaderRegisters>();
    auto loader = make_loader(memory);
    ForEachJob(a, units, num_units, [&](const AttentionUnit& unit, int, const AttentionUnit& next) {
      loader.Load(unit, 0, next);
    });
    if constexpr (!Memory::kIsHopper && !kFp8) loader.End();
  } else {
    if constexpr (kFp8 && Memory::kIsHopper) ptx::TakeRegisters<kFp8ComputerRegisters>();
    LatentComputer<Memory> computer(a, memory);
    ForEachJob(a, units, num_units,
               [&](const AttentionUnit& unit, int, const AttentionUnit&) { computer.Run(unit); });
  }
}

// Templates, so that their bodies are left out for GPUs before Hopper.
template <int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    LatentAttentionKernel(const __grid_constant__ CUtensorMap latents,
                          const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    RunOnLatents<HopperMemory, false>(
        a, [&](auto& memory) { return LatentLoader(&latents, a, memory); });
  }
}
template <int kDim>
__global__ void __launch_bounds__(kFp8Threads, 1)
    Fp8LatentAttentionKernel(const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    RunOnLatents<HopperMemory, true>(
        a, [&](auto& memory) { return Fp8Loader<kDim, 1, 2, false, HopperMemory>(a, memory); });
  }
}
template <typename Memory>
__global__ void __launch_bounds__(kThreads, 1)
    AmpereLatentAttentionKernel(const __grid_constant__ AttentionArgs a) {
  RunOnLatents<Memory, false>(a, [&](auto& memory) {
    return LaneLoader<kKeyDim, Memory::kSlotKeys, false, Memory>(a, memory);
  });
}

template <typename Memory>
__global__ void __launch_bounds__(kFp8Threads, 1)
    AmpereFp8LatentAttentionKernel(const __grid_constant__ AttentionArgs a) {
  RunOnLatents<Memory, true>(a, [&](auto& memory) {
    return Fp8Loader<kKeyDim, 1, 2, false, Memory, KernelForm::kAmpere, Memory::kSlotKeys>(a,
                                                                                           memory);
  });
}

template <typename Memory>
cudaError_t LaunchAmpere(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  if constexpr (kHasAmpereForm) {
    const bool is_fp8 = args.cache.dtype == DType::kF8E4M3;
    const auto kernel =
        is_fp8 ? &AmpereFp8LatentAttentionKernel<Memory> : &AmpereLatentAttentionKernel<Memory>;
    const cudaError_t error = AllowSharedMemory(kernel, sizeof(Memory));
    if (error != cudaSuccess) return error;
    return LaunchGroups({.dependent = HasDependents()}, kernel, static_cast<unsigned>(ctas),
                        is_fp8 ? kFp8Threads : kThreads, sizeof(Memory), stream, args);
  } else {
    return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace mma_attention

bool HasLatentAttention(const AttentionShape& shape) {
  return (shape.kv_dtype == DType::kBF16 || shape.kv_dtype == DType::kF8E4M3) &&
         shape.head_dim == mma_attention::kKeyDim && shape.ValueDim() == mma_attention::kValueDim &&
         shape.values_in_keys && shape.num_kv_heads == 1 && shape.block_size >= 8 &&
         std::has_single_bit(static_cast<unsigned>(shape.block_size));
}

bool LatentAttentionReads(const KvLayerView& cache) {
  constexpr int64_t kUnit = 16;  // bytes
  const auto base = reinterpret_cast<int64_t>(cache.base);
  const auto values_after = static_cast<int64_t>(
      RowBytes(cache.dtype, mma_attention::kKeyDim - mma_attention::kValueDim));
  return HasLatentAttention({.num_kv_heads = cache.num_kv_heads,
                             .head_dim = cache.head_dim,
                             .block_size = cache.block_size,
                             .kv_dtype = cache.dtype,
                             .value_dim = cache.value_dim,
                             .values_in_keys = cache.values_in_keys}) &&
         cache.v_offset == cache.k_offset + values_after && (base + cache.k_offset) % kUnit == 0 &&
         cache.block_stride % kUnit == 0;
}

cudaError_t LaunchLatentAttention(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  return mma_attention::LaunchOnLatents(
      &mma_attention::LatentAttentionKernel<mma_attention::kKeyDim>, mma_attention::kThreads,
      &mma_attention::Fp8LatentAttentionKernel<mma_attention::kKeyDim>, mma_attention::kFp8Threads,
      sizeof(mma_attention::HopperMemory), args, ctas, stream);
}

cudaError_t LaunchAmpereLatentAttention(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  if (!LatentAttentionReads(args.cache)) return cudaErrorInvalidValue;
  using mma_attention::AmpereMemory, mma_attention::SmallAmpereMemory;
  return static_cast<size_t>(MaxSharedBytes()) >= sizeof(AmpereMemory)
             ? mma_attention::LaunchAmpere<AmpereMemory>(args, ctas, stream)
             : mma_attention::LaunchAmpere<SmallAmpereMemory>(args, ctas, stream);
}

}  // namespace tokamak::cuda
