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
// Shared memory is 51 KB, so that an SM holds two CTAs and leaves room for the next kernel's.
#include "ops/cuda/mma_attention.h"

#include <algorithm>
#include <bit>

#include "ops/cuda/attention_splits.cuh"
#include "ops/cuda/mma_attention_tiles.cuh"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda {
namespace mma_attention {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

__device__ inline uint32_t PackBf16(float low, float high) {
  return BF16::Store(low) | uint32_t{BF16::Store(high)} << 16;
}

// What a warp has summed up over some keys. Index i of two is row lane / 4 + 8 i.
template <int kPairs>
struct Sums {
  float highest[2];  // score, in units of log2
  float sum[2];      // of weights
  float values[2 * kPairs][4];

  __device__ void Clear() {
    highest[0] = highest[1] = -INFINITY;
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) values[j][c] = 0;
    }
  }
  // Takes in a later split of row i.
  __device__ void Merge(const Sums& other, int i) {
    const float both = fmaxf(highest[i], other.highest[i]);
    const float factor = exp2f(__fadd_rn(highest[i], -both));
    const float weight = exp2f(__fadd_rn(other.highest[i], -both));
    highest[i] = both;
    sum[i] = fmaf(other.sum[i], weight, __fmul_rn(sum[i], factor));
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
      for (int c = 2 * i; c < 2 * i + 2; ++c) {
        values[j][c] = fmaf(other.values[j][c], weight, __fmul_rn(values[j][c], factor));
      }
    }
  }
  __device__ void Copy(const Sums& other, int i) {
    highest[i] = other.highest[i];
    sum[i] = other.sum[i];
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) {
      values[j][2 * i] = other.values[j][2 * i];
      values[j][2 * i + 1] = other.values[j][2 * i + 1];
    }
  }
};

// What the warps that compute do.
template <int kHeadDim>
class Computer {
 public:
  using S = Shape<kHeadDim>;
  using State = Sums<S::kPairs>;

  __device__ Computer(const AttentionArgs& a, typename S::Memory& memory)
      : a_(a),
        memory_(memory),
        warp_(static_cast<int>(threadIdx.x / kWarp)),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        scale_(a.scale * kLog2E) {}

  __device__ void Run(const AttentionUnit& unit, int kv_head) {
    kv_head_ = kv_head;
    const Rows rows(a_, unit);
    LoadQueries(rows);
    State total;
    total.Clear();
    const Splits splits(unit);
    for (int split = splits.begin; split < splits.end; ++split) {
      State sums;
      ComputeSplit(rows, split, sums);
      if (unit.split < 0) {
        TakeIn(rows, split, 0, sums, total);
        TakeIn(rows, split, 1, sums, total);
      } else {
        WritePartial(unit, rows, sums);
      }
    }
    if (unit.split >= 0) {
      const auto sync = [this] { SyncComputers(); };
      if (!IsLastSplit(a_, unit, kv_head_, memory_.is_last, sync)) return;
      MergePartials(unit, rows, total);
    }
    Write(rows, total);
  }

 private:
  __device__ int RowOf(int i) const { return lane_ / 4 + 8 * i; }
  // Of the first of the lane's two columns in group j of 8.
  __device__ int DimOf(int j) const { return warp_ * S::kWarpDims + j * 8 + lane_ % 4 * 2; }
  __device__ void SyncComputers() { ptx::SyncNamed(1, kConsumers); }

  __device__ void LoadQueries(const Rows& rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_row = RowOf(i) < rows.count;
      const float* query = nullptr;
      if (is_row) {
        const int head = kv_head_ * rows.group + rows.HeadInGroup(RowOf(i));
        query = a_.q + rows.Token(RowOf(i)) * a_.q_stride + int64_t{head} * kHeadDim;
      }
#pragma unroll
      for (int k = 0; k < kHeadDim / kStep; ++k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int d = k * kStep + half * 8 + lane_ % 4 * 2;
          queries_[k][2 * half + i] = is_row ? PackBf16(query[d], query[d + 1]) : 0;
        }
      }
    }
  }

  // The sums of a split, with the weights' sums complete in every warp.
  __device__ void ComputeSplit(const Rows& rows, int split, State& sums) {
    sums.Clear();
    const KeyTiles tiles(rows, split);
    for (int first = tiles.begin; first < tiles.end; first += kKeyTile) {
      float scores[2][4];
      Score(scores);
      Weigh(rows, first, scores, sums);
      const bool all_seen =
          rows.FirstKey(rows.count - 1) <= first && first + kKeyTile - 1 <= rows.LastKey(0);
      if (all_seen) {
        AddValues<false>(rows, first, sums);
      } else {
        AddValues<true>(rows, first, sums);
      }
    }
    AddUpWeights(sums);
  }

  // scores[j]: of the rows and the warp's keys from 8 j on.
  __device__ void Score(float (&scores)[2][4]) {
    memory_.ring.WaitUntilFilled(fill_);
    const uint8_t* const keys = memory_.stages[memory_.ring.Slot(fill_)];
#pragma unroll
    for (int c = 0; c < 4; ++c) scores[0][c] = scores[1][c] = 0;
    const int matrix = lane_ / 8;
    const int key = warp_ * kWarpKeys + matrix / 2 * 8 + lane_ % 8;
#pragma unroll
    for (int k = 0; k < kHeadDim / kStep; ++k) {
      uint32_t b[4];
      ptx::LoadMatrices(b, ChunkOf(keys, key, 2 * k + matrix % 2));
      ptx::MultiplyBf16(scores[0], queries_[k], {b[0], b[1]});
      ptx::MultiplyBf16(scores[1], queries_[k], {b[2], b[3]});
    }
    memory_.ring.ReleaseAfterLoads(fill_++);
  }

  // Turns scores into weights, for all warps to read, and scales what there is to the highest score
  // so far. Scores that are not finite give NaN.
  __device__ void Weigh(const Rows& rows, int first, float (&scores)[2][4], State& sums) {
    const int first_key = first + warp_ * kWarpKeys + lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int low = rows.FirstKey(RowOf(i)), high = rows.LastKey(RowOf(i));
      float highest = -INFINITY;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int key = first_key + j * 8 + c;
          float& score = scores[j][2 * i + c];
          if (key < low || key > high) score = -INFINITY;
          highest = fmaxf(highest, score);
        }
      }
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2));
      if (lane_ % 4 == 0) memory_.highest[warp_][RowOf(i)] = highest;
    }
    SyncComputers();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float highest = memory_.highest[0][RowOf(i)];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) highest = fmaxf(highest, memory_.highest[w][RowOf(i)]);
      highest = fmaxf(sums.highest[i], __fmul_rn(highest, scale_));
      // Of a row that has seen no key yet, everything is zero.
      const float base = highest == -INFINITY ? 0.0f : highest;
      const float factor = exp2f(__fadd_rn(sums.highest[i], -base));
      sums.highest[i] = highest;
      float weights[2][2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          weights[j][c] = exp2f(fmaf(scores[j][2 * i + c], scale_, -base));
        }
        auto* const to = &memory_.weights[RowOf(i)][warp_ * kWarpKeys + j * 8 + lane_ % 4 * 2];
        *reinterpret_cast<uint32_t*>(to) = PackBf16(weights[j][0], weights[j][1]);
      }
      const float pairs = __fadd_rn(__fadd_rn(weights[0][0], weights[0][1]),
                                    __fadd_rn(weights[1][0], weights[1][1]));
      sums.sum[i] = fmaf(sums.sum[i], factor, pairs);
#pragma unroll
      for (int n = 0; n < 2 * S::kPairs; ++n) {
        sums.values[n][2 * i] = __fmul_rn(sums.values[n][2 * i], factor);
        sums.values[n][2 * i + 1] = __fmul_rn(sums.values[n][2 * i + 1], factor);
      }
    }
    SyncComputers();
  }

  // kSomeUnseen: some row does not see some key of the tile. Values that no row sees may be
  // anything.
  template <bool kSomeUnseen>
  __device__ void AddValues(const Rows& rows, int first, State& sums) {
    memory_.ring.WaitUntilFilled(fill_);
    const uint8_t* const stage = memory_.stages[memory_.ring.Slot(fill_)];
    const int matrix = lane_ / 8;
#pragma unroll
    for (int k = 0; k < kKeyTile / kStep; ++k) {
      const int row = matrix % 2 * 8 + lane_ % 8;  // of the weights; along k, of the values
      uint32_t weights[4];
      ptx::LoadMatrices(weights, &memory_.weights[row][k * kStep + matrix / 2 * 8]);
#pragma unroll
      for (int pair = 0; pair < S::kPairs; ++pair) {
        const int chunk = warp_ * (S::kWarpDims / 8) + 2 * pair + matrix / 2;
        uint32_t values[4];
        ptx::LoadMatricesTransposed(values, ChunkOf(stage, k * kStep + row, chunk));
        float(&low)[4] = sums.values[2 * pair];
        float(&high)[4] = sums.values[2 * pair + 1];
        if constexpr (kSomeUnseen) {
          KeepSeen(first + k * kStep, rows.FirstKey(), rows.LastKey(), values);
          if (__any_sync(kAllLanes, HasNonFinite(values))) {
            AddRowByRow(rows, first + k * kStep, weights, values, low, high);
            continue;
          }
        }
        ptx::MultiplyBf16(low, weights, {values[0], values[1]});
        ptx::MultiplyBf16(high, weights, {values[2], values[3]});
      }
    }
    memory_.ring.ReleaseAfterLoads(fill_++);
  }

  // Zeros in place of the values of keys outside [low, high]; the fragments are of keys from
  // `first` on.
  __device__ void KeepSeen(int first, int low, int high, uint32_t (&values)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first + half * 8 + lane_ % 4 * 2;
      const uint32_t mask = (low <= key && key <= high ? 0x0000ffffu : 0) |
                            (low <= key + 1 && key + 1 <= high ? 0xffff0000u : 0);
      values[half] &= mask;
      values[2 + half] &= mask;
    }
  }
  static __device__ bool HasNonFinite(const uint32_t (&values)[4]) {
    bool any = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      any |= (values[i] & 0x7f80u) == 0x7f80u || (values[i] & 0x7f800000u) == 0x7f800000u;
    }
    return any;
  }
  // Zero times NaN is NaN: each row gets a product without what it does not see. Rare.
  __device__ void AddRowByRow(const Rows& rows, int first, const uint32_t (&weights)[4],
                              const uint32_t (&values)[4], float (&low)[4], float (&high)[4]) {
    float sums[2][4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      sums[0][c] = low[c];
      sums[1][c] = high[c];
    }
    for (int row = 0; row < rows.count; ++row) {
      uint32_t seen[4] = {values[0], values[1], values[2], values[3]};
      KeepSeen(first, rows.FirstKey(row), rows.LastKey(row), seen);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float products[4] = {sums[j][0], sums[j][1], sums[j][2], sums[j][3]};
        ptx::MultiplyBf16(products, weights, {seen[2 * j], seen[2 * j + 1]});
        float(&to)[4] = j == 0 ? low : high;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (RowOf(c / 2) == row) to[c] = products[c];
        }
      }
    }
  }

  // From each lane's sum of weights to the row's.
  __device__ void AddUpWeights(State& sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = sums.sum[i];
      sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 1));
      sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 2));
      if (lane_ % 4 == 0) memory_.sums[warp_][RowOf(i)] = sum;
    }
    SyncComputers();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = memory_.sums[0][RowOf(i)];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) sum = __fadd_rn(sum, memory_.sums[w][RowOf(i)]);
      sums.sum[i] = sum;
    }
  }

  // Merges a split into the total of row i, if that sees any of it.
  __device__ void TakeIn(const Rows& rows, int split, int i, const State& sums,
                         State& total) const {
    const int first = rows.FirstKey(RowOf(i)) / kSplitKeys;
    if (split < first || split > rows.LastKey(RowOf(i)) / kSplitKeys) return;
    if (split == first) {
      total.Copy(sums, i);
    } else {
      total.Merge(sums, i);
    }
  }

  __device__ float* Partial(const AttentionUnit& unit, int split, int i) const {
    const int64_t index = unit.partial + (split - unit.begin_split);
    const int64_t row = (index * a_.cache.num_kv_heads + kv_head_) * kTileRows + RowOf(i);
    return a_.partials + row * (kHeadDim + 2);
  }

  __device__ void WritePartial(const AttentionUnit& unit, const Rows& rows, const State& sums) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (RowOf(i) >= rows.count) continue;
      float* const partial = Partial(unit, unit.split, i);
#pragma unroll
      for (int j = 0; j < 2 * S::kPairs; ++j) {
        partial[DimOf(j)] = sums.values[j][2 * i];
        partial[DimOf(j) + 1] = sums.values[j][2 * i + 1];
      }
      if (warp_ == 0 && lane_ % 4 == 0) {
        partial[kHeadDim] = sums.highest[i];
        partial[kHeadDim + 1] = sums.sum[i];
      }
    }
  }

  // Other CTAs wrote these: not from this one's L1.
  __device__ void LoadPartial(const AttentionUnit& unit, int split, int i, State& sums) const {
    const float* const partial = Partial(unit, split, i);
    sums.highest[i] = __ldcg(partial + kHeadDim);
    sums.sum[i] = __ldcg(partial + kHeadDim + 1);
#pragma unroll
    for (int j = 0; j < 2 * S::kPairs; ++j) {
      sums.values[j][2 * i] = __ldcg(partial + DimOf(j));
      sums.values[j][2 * i + 1] = __ldcg(partial + DimOf(j) + 1);
    }
  }
  // Several are requested at once: one after the other, the splits of a long sequence take longer
  // to be read here than to be computed.
  __device__ void MergePartials(const AttentionUnit& unit, const Rows& rows, State& total) const {
    constexpr int kAtOnce = 6;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (RowOf(i) >= rows.count) continue;
      for (int first = unit.begin_split; first < unit.end_split; first += kAtOnce) {
        State sums[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          LoadPartial(unit, min(first + k, unit.end_split - 1), i, sums[k]);
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if (first + k < unit.end_split) TakeIn(rows, first + k, i, sums[k], total);
        }
      }
    }
  }

  // Adding zero makes a negative zero positive: which of the two a row holds may depend on its
  // tile.
  __device__ void Write(const Rows& rows, const State& total) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (RowOf(i) >= rows.count) continue;
      const int64_t token = rows.Token(RowOf(i));
      const int head = kv_head_ * rows.group + rows.HeadInGroup(RowOf(i));
      const int64_t at = token * a_.out_stride + int64_t{head} * kHeadDim;
#pragma unroll
      for (int j = 0; j < 2 * S::kPairs; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float value = __fadd_rn(__fdiv_rn(total.values[j][2 * i + c], total.sum[i]), 0.0f);
          if (a_.out_bf16) {
            static_cast<uint16_t*>(a_.out)[at + DimOf(j) + c] = BF16::Store(value);
          } else {
            static_cast<float*>(a_.out)[at + DimOf(j) + c] = value;
          }
        }
      }
      if (a_.lse != nullptr && warp_ == 0 && lane_ % 4 == 0) {
        a_.lse[token * a_.lse_stride + head] =
            __fmul_rn(__fadd_rn(total.highest[i], log2f(total.sum[i])), kLn2);
      }
    }
  }

  const AttentionArgs& a_;
  typename S::Memory& memory_;
  const int warp_, lane_;
  int kv_head_ = 0;
  const float scale_;  // to units of log2
  uint32_t queries_[kHeadDim / kStep][4];
  unsigned fill_ = 0;
};

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2)
    MmaAttentionKernel(const __grid_constant__ CUtensorMap keys,
                       const __grid_constant__ CUtensorMap values,
                       const __grid_constant__ AttentionArgs a) {
  if constexpr (ptx::kIsHopper) {
    DYNAMIC_SHARED(aligned, SwizzleAligned);
    auto& memory = *reinterpret_cast<typename Shape<kHeadDim>::Memory*>(aligned);
    ptx::LaunchDependents();
    if (threadIdx.x == 0) memory.ring.Init(kWarps);
    __syncthreads();
    ptx::WaitForKernelAhead();
    const auto* const units = reinterpret_cast<const AttentionUnit*>(a.plan + 1);
    // With the heads of a unit in a row, few units still engage all SMs.
    const auto each_job = [&](auto&& run) {
      const int heads = a.cache.num_kv_heads;
      for (int job = static_cast<int>(blockIdx.x); job < a.plan->num_units * heads;
           job += static_cast<int>(gridDim.x)) {
        const AttentionUnit unit = units[job / heads];
        run(unit, job % heads);
      }
    };
    if (threadIdx.x >= kConsumers) {
      Loader<kHeadDim> loader(&keys, &values, a, memory);
      each_job([&](const AttentionUnit& unit, int kv_head) { loader.Load(unit, kv_head); });
    } else {
      Computer<kHeadDim> computer(a, memory);
      each_job([&](const AttentionUnit& unit, int kv_head) { computer.Run(unit, kv_head); });
    }
  }
}

// The keys or values of a layer, which begin at `offset` in each block. How many blocks there are
// is not known here: tables name those that exist.
CUresult MapCache(const KvLayerView& cache, int64_t offset, CUtensorMap* map) {
  const auto row_bytes = static_cast<uint64_t>(cache.head_dim) * 2;
  const auto rows = static_cast<uint64_t>(cache.num_kv_heads) * cache.block_size;
  return MakeTensorMap(
      {.data = cache.base + offset,
       .element_bytes = 2,
       .sizes = {static_cast<uint64_t>(cache.head_dim), rows, uint64_t{1} << 31},
       .strides = {row_bytes, static_cast<uint64_t>(cache.block_stride)},
       .box = {kStripDims, static_cast<uint32_t>(std::min(cache.block_size, kKeyTile)), 1},
       .swizzle = kRowBytes},
      map);
}

template <int kHeadDim>
cudaError_t Launch(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  CUtensorMap keys;
  CUtensorMap values;
  if (MapCache(args.cache, args.cache.k_offset, &keys) != CUDA_SUCCESS ||
      MapCache(args.cache, args.cache.v_offset, &values) != CUDA_SUCCESS) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = &MmaAttentionKernel<kHeadDim>;
  constexpr size_t kBytes = sizeof(typename Shape<kHeadDim>::Memory);
  static_assert(kBytes <= 54 << 10);
  const cudaError_t error = AllowSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  const auto grid = static_cast<unsigned>(ctas * args.cache.num_kv_heads);
  return LaunchGroups({.dependent = true}, kernel, grid, kThreads, kBytes, stream, keys, values,
                      args);
}

}  // namespace
}  // namespace mma_attention

bool HasMmaAttention(DType dtype, int32_t head_dim, int32_t block_size) {
  return dtype == DType::kBF16 && (head_dim == 64 || head_dim == 128) && block_size >= 8 &&
         std::has_single_bit(static_cast<unsigned>(block_size));
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
  if (!MmaAttentionReads(args.cache)) return cudaErrorInvalidValue;
  return args.cache.head_dim == 64 ? mma_attention::Launch<64>(args, ctas, stream)
                                   : mma_attention::Launch<128>(args, ctas, stream);
}

}  // namespace tokamak::cuda
