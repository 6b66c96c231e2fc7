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
#include "ops/cuda/latent_attention.h"

#include <bit>

#include "ops/cuda/attention_splits.cuh"
#include "ops/cuda/fp8_attention_tiles.cuh"
#include "ops/cuda/latent_attention_tiles.cuh"
#include "ops/cuda/mma_attention_rows.cuh"
#include "ops/cuda/mma_attention_tiles.cuh"
#include "ops/cuda/mma_attention_weights.cuh"

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
constexpr unsigned kStages = 2;

struct alignas(SwizzleAligned) LatentMemory {
  uint8_t stages[kStages][kLatentTileBytes];
  uint8_t queries[kLatentStrips][kQueryStripBytes];  // bf16, swizzled as the keys are
  // bf16; padded, so that ldmatrix meets no bank twice.
  alignas(16) uint16_t weights[kTileRows][kKeyTile + 8];
  // The totals of merged splits of each thread: {highest, sum} of its rows, and values.
  Four<float> states[kConsumers];
  Four<float> totals[2 * kPairs][kConsumers];
  float highest[kScorers][kTileRows];
  float sums[kScorers][kTileRows];
  RingBarriers<kStages> ring;
  bool is_last;
};
static_assert(sizeof(LatentMemory) <= 227 << 10);

// The work of the computing warps.
class LatentComputer : TileComputer<LatentMemory, kWarps, kScorers> {
 public:
  using Base = TileComputer<LatentMemory, kWarps, kScorers>;
  using State = Sums<2 * kPairs>;
  using Part = Place<kValueDim, kTileRows, 2 * kPairs>;

  __device__ LatentComputer(const AttentionArgs& a, LatentMemory& memory) : Base(a, memory) {}

  __device__ void Run(const AttentionUnit& unit) {
    const Part part = {.a = a_,
                       .kv_head = 0,
                       .first_row = RowOf(0),
                       .first_dim = warp_ * kWarpDims + lane_ % 4 * 2,
                       .writes_state = warp_ == 0 && lane_ % 4 == 0};
    const Rows rows(a_, unit);
    TakeKeys(rows);
    ptx::WaitForKernelAhead();
    LoadQueries(rows);
    SyncComputers();
    State sums;
    const bool is_one = unit.end_split == unit.begin_split + 1;
    for (int split = unit.begin_part; split < unit.end_part; ++split) {
      ComputeSplit(rows, split, sums);
      if (unit.IsPart()) {
        part.WritePartial(unit, rows, split, sums);
      } else if (!is_one) {
        TakeIn(split, sums);
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
      memory_.ring.WaitUntilFilled(fill_);
      const uint8_t* const latents = memory_.stages[memory_.ring.Slot(fill_)];
      float scores[2][4];
      if (IsScorer()) Score(latents, scores);
      Weigh(rows, first, scores, sums);
      AddValues(rows, seen, first, latents, sums);
      memory_.ring.ReleaseAfterLoads(fill_++);
    }
    AddUpWeights(sums);
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
        ptx::LoadMatrices(b, ChunkOf(latents, key, 2 * k + matrix % 2) + strip * kStripBytes);
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
      }
    } else {
      // Rolled up: in a short kernel, instructions that are not in the cache take long.
#pragma unroll 1
      for (int k = seen.BeginStep(first); k < seen.EndStep(first); ++k) {
        AddSeen(rows, seen, first + k * kStep, k, latents, sums);
      }
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
      ptx::LoadMatricesTransposed(both, ChunkOf(latents, k * kStep + row, chunk));
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
  __device__ void TakeIn(int split, const State& sums) {
    Four<float>& state = memory_.states[threadIdx.x];
    float highest[2] = {state.values[0], state.values[1]};
    float sum[2] = {state.values[2], state.values[3]};
    TakeIntoTotals(split, first_key_, last_key_, sums, highest, sum, memory_.totals);
    state = {highest[0], highest[1], sum[0], sum[1]};
  }
  __device__ void LoadTotal(State& sums) const {
    const Four<float> state = memory_.states[threadIdx.x];
    LoadTotals({state.values[0], state.values[1]}, {state.values[2], state.values[3]},
               memory_.totals, sums);
  }

  unsigned fill_ = 0;
};

// What a CTA does whose loading warps call Load of what make_loader(memory) returns. CTAs without a
// unit end at once; there are many if sequences are few. Loader says why the plan may be read so
// early. One thread of the grid must still wait for the kernel ahead.
template <bool kFp8, typename MakeLoader>
__device__ void RunOnLatents(const AttentionArgs& a, MakeLoader make_loader) {
  DYNAMIC_SHARED(aligned, SwizzleAligned);
  auto& memory = *reinterpret_cast<LatentMemory*>(aligned);
  ptx::LaunchDependents();
  const auto* const units = reinterpret_cast<const AttentionUnit*>(a.plan + 1);
  const int num_units = a.plan->num_units;
  if (static_cast<int>(blockIdx.x) >= num_units) {
    if (blockIdx.x == 0) ptx::WaitForKernelAhead();
    return;
  }
  if (threadIdx.x == 0) memory.ring.Init(kWarps, kFp8 ? kFp8LoaderWarps : 1);
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if constexpr (kFp8) ptx::GiveRegistersBack<kFp8LoaderRegisters>();
    auto loader = make_loader(memory);
    ForEachJob(a, units, num_units, [&](const AttentionUnit& unit, int, const AttentionUnit& next) {
      loader.Load(unit, 0, next);
    });
  } else {
    if constexpr (kFp8) ptx::TakeRegisters<kFp8ComputerRegisters>();
    LatentComputer computer(a, memory);
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
    RunOnLatents<false>(a, [&](auto& memory) { return LatentLoader(&latents, a, memory); });
  }
}
template <int kDim>
__global__ void __launch_bounds__(kFp8Threads, 1)
    Fp8LatentAttentionKernel(const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    RunOnLatents<true>(
        a, [&](auto& memory) { return Fp8Loader<kDim, 1, 2, false, LatentMemory>(a, memory); });
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
      sizeof(mma_attention::LatentMemory), args, ctas, stream);
}

}  // namespace tokamak::cuda
