// Shared by the kernels of attention on tensor cores: how a warp sums up, merges and writes its 16
// rows. Lane l has rows l / 4 (i = 0) and l / 4 + 8 (i = 1). Of every 8 columns it has
// l % 4 · 2 and the next, as mma.sync and wgmma leave sums.
#pragma once

#include <cstdint>

#include "ops/cuda/device.cuh"
#include "ops/cuda/mma_attention_tiles.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda::mma_attention {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

__device__ inline uint32_t PackBf16(float low, float high) {
  return BF16::Store(low) | uint32_t{BF16::Store(high)} << 16;
}

// Reads the elements `at` (even) and `at` + 1 of a row of q as bf16, by one instruction if `fits`.
__device__ inline uint32_t QueryPair(const AttentionArgs& a, int64_t token, int64_t at, bool fits) {
  struct alignas(8) Pair {
    float low, high;
  };
  if (a.q_bf16) {
    const auto* q = static_cast<const uint16_t*>(a.q) + token * a.q_stride + at;
    return fits ? *reinterpret_cast<const uint32_t*>(q) : q[0] | uint32_t{q[1]} << 16;
  }
  const auto* q = static_cast<const float*>(a.q) + token * a.q_stride + at;
  const Pair pair = fits ? *reinterpret_cast<const Pair*>(q) : Pair{.low = q[0], .high = q[1]};
  return PackBf16(pair.low, pair.high);
}
__device__ inline bool QueryPairsFit(const AttentionArgs& a) {
  const uintptr_t bytes = a.q_bf16 ? sizeof(uint16_t) : sizeof(float);
  return (reinterpret_cast<uintptr_t>(a.q) | static_cast<uintptr_t>(a.q_stride) * bytes) %
             (2 * bytes) ==
         0;
}
// Whether eight elements of q at a multiple of eight can be read by one instruction, and need no
// conversion.
__device__ inline bool QueryEightsFit(const AttentionArgs& a) {
  return a.q_bf16 && reinterpret_cast<uintptr_t>(a.q) % 16 == 0 && a.q_stride % 8 == 0;
}

// Capped scores are the cap times tanh(scale · score / cap): the cap takes the place of the scale.
class ScoreCap {
 public:
  __device__ explicit ScoreCap(const AttentionArgs& a) {
    exponent_ = __fmul_rn(__fmul_rn(2 * kLog2E, a.scale), __fdividef(1.0f, a.softcap));
  }

  // tanh(x) = 1 - 2 / (1 + e^(2x)). Near zero that is off by a few 2^-24 of the cap.
  __device__ float Of(float score) const {
    const float power = exp2f(__fmul_rn(exponent_, score));
    return fmaf(-2.0f, __fdividef(1.0f, __fadd_rn(power, 1.0f)), 1.0f);
  }
  // The factor from scores, capped if there is a cap, to units of log2.
  static __device__ float Scale(const AttentionArgs& a) {
    return (a.softcap > 0 ? a.softcap : a.scale) * kLog2E;
  }

 private:
  float exponent_;
};

// The largest and the sum of the values of a row's four lanes.
__device__ inline float MaxOfRow(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ inline float SumOfRow(float value) {
  value = __fadd_rn(value, __shfl_xor_sync(kAllLanes, value, 1));
  return __fadd_rn(value, __shfl_xor_sync(kAllLanes, value, 2));
}

// Factors for the sums over some keys, and for the sums over later keys that are merged into those.
struct MergeFactors {
  float sums, later;
};
// Merges the highest score, in units of log2, and the sum of weights of later keys into a row's.
__device__ inline MergeFactors MergeWeights(float& highest, float& sum, float later_highest,
                                            float later_sum) {
  const float both = fmaxf(highest, later_highest);
  const MergeFactors factors = {.sums = exp2f(__fadd_rn(highest, -both)),
                                .later = exp2f(__fadd_rn(later_highest, -both))};
  highest = both;
  sum = fmaf(later_sum, factors.later, __fmul_rn(sum, factors.sums));
  return factors;
}
__device__ inline float MergeValues(const MergeFactors& factors, float value, float later) {
  return fmaf(later, factors.later, __fmul_rn(value, factors.sums));
}

// A warp's sums over some keys, for kGroups times 8 columns.
template <int kGroups>
struct Sums {
  float highest[2];  // score, in units of log2
  float sum[2];      // of weights
  float values[kGroups][4];

  __device__ void Clear() {
    highest[0] = highest[1] = -INFINITY;
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) values[j][c] = 0;
    }
  }
  // The values in the order of wgmma's registers.
  __device__ float (&AllValues())[4 * kGroups] {
    return reinterpret_cast<float(&)[4 * kGroups]>(values);
  }
  // Raises the highest score of row i to that of a tile. Returns the factor for the sums so far;
  // scores minus `base` become weights.
  __device__ float Raise(int i, float tile_highest, float& base) {
    const float raised = fmaxf(highest[i], tile_highest);
    // For a row that has seen no key yet, everything is zero.
    base = raised == -INFINITY ? 0.0f : raised;
    const float factor = exp2f(__fadd_rn(highest[i], -base));
    highest[i] = raised;
    return factor;
  }
  __device__ void ScaleValues(int i, float factor) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      values[j][2 * i] = __fmul_rn(values[j][2 * i], factor);
      values[j][2 * i + 1] = __fmul_rn(values[j][2 * i + 1], factor);
    }
  }
  // Merges the sums of a later split into those of row i.
  __device__ void Merge(const Sums& other, int i) {
    const MergeFactors factors = MergeWeights(highest[i], sum[i], other.highest[i], other.sum[i]);
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int c = 2 * i; c < 2 * i + 2; ++c) {
        values[j][c] = MergeValues(factors, values[j][c], other.values[j][c]);
      }
    }
  }
  __device__ void Copy(const Sums& other, int i) {
    highest[i] = other.highest[i];
    sum[i] = other.sum[i];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      values[j][2 * i] = other.values[j][2 * i];
      values[j][2 * i + 1] = other.values[j][2 * i + 1];
    }
  }
  // Merges a split into the total of row i (row `row` of `rows`) if the row sees any key of it.
  __device__ void TakeIn(const Rows& rows, int row, int split, int i, const Sums& sums) {
    const int first = rows.FirstKey(row) / kSplitKeys;
    if (split < first || split > rows.LastKey(row) / kSplitKeys) return;
    if (split == first) {
      Copy(sums, i);
    } else {
      Merge(sums, i);
    }
  }
};

// Totals that a thread keeps outside of its registers: totals[j][threadIdx.x] are the values of
// group j. `highest` and `sum` are those of its two rows. Merges a split into those of the rows
// that see any of it.
template <int kGroups, int kThreads>
__device__ void TakeIntoTotals(int split, const int (&first_key)[2], const int (&last_key)[2],
                               const Sums<kGroups>& sums, float (&highest)[2], float (&sum)[2],
                               Four<float> (&totals)[kGroups][kThreads]) {
  bool is_first[2], is_seen[2];
  MergeFactors factors[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int first = first_key[i] / kSplitKeys;
    is_first[i] = split == first;
    is_seen[i] = split >= first && split <= last_key[i] / kSplitKeys;
    if (is_first[i]) {
      highest[i] = sums.highest[i];
      sum[i] = sums.sum[i];
    } else if (is_seen[i]) {
      factors[i] = MergeWeights(highest[i], sum[i], sums.highest[i], sums.sum[i]);
    }
  }
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    Four<float>& total = totals[j][threadIdx.x];
    Four<float> merged = total;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float value = sums.values[j][c];
      if (is_first[c / 2]) {
        merged.values[c] = value;
      } else if (is_seen[c / 2]) {
        merged.values[c] = MergeValues(factors[c / 2], merged.values[c], value);
      }
    }
    total = merged;
  }
}
template <int kGroups, int kThreads>
__device__ void LoadTotals(const float (&highest)[2], const float (&sum)[2],
                           const Four<float> (&totals)[kGroups][kThreads], Sums<kGroups>& sums) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sums.highest[i] = highest[i];
    sums.sum[i] = sum[i];
  }
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const Four<float> total = totals[j][threadIdx.x];
#pragma unroll
    for (int c = 0; c < 4; ++c) sums.values[j][c] = total.values[c];
  }
}

// Returns where a row of a tile of kRows rows keeps a split's values, highest score and sum.
template <int kHeadDim, int kRows>
__device__ float* PartialOf(const AttentionArgs& a, const AttentionUnit& unit, int kv_head,
                            int split, int row) {
  const int64_t heads = a.cache.num_kv_heads;
  const int64_t tile = int64_t{unit.partial} * heads * kTileRows;
  const int64_t index = split - unit.begin_split;
  return a.partials + (tile + (index * heads + kv_head) * kRows + row) * PartialFloats(kHeadDim);
}

// Writes two elements of the output.
__device__ inline void StorePair(const AttentionArgs& a, int64_t at, float low, float high) {
  if (!a.out_bf16) {
    auto* const to = static_cast<float*>(a.out) + at;
    to[0] = low;
    to[1] = high;
    return;
  }
  auto* const to = static_cast<uint16_t*>(a.out) + at;
  if (reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0) {
    *reinterpret_cast<uint32_t*>(to) = PackBf16(low, high);
  } else {
    to[0] = BF16::Store(low);
    to[1] = BF16::Store(high);
  }
}
// The end of a row: the sink, if the head has one, is merged last, as a score without a value.
struct RowEnd {
  __device__ RowEnd(const AttentionArgs& a, int head, float highest_score, float sum_of_weights)
      : highest(highest_score), sum(sum_of_weights), factor(1) {
    if (a.sinks == nullptr) return;
    factor = MergeWeights(highest, sum, __fmul_rn(a.sinks[head], kLog2E), 1).sums;
  }
  __device__ float OutputOf(float value) const {
    // Adds zero, which makes a negative zero positive. Whether a zero is negative may depend on the
    // tile that computed it.
    return __fadd_rn(__fdiv_rn(__fmul_rn(value, factor), sum), 0.0f);
  }

  float highest, sum, factor;
};
__device__ inline void StoreLse(const AttentionArgs& a, int64_t token, int head, const RowEnd& end) {
  a.lse[token * a.lse_stride + head] = __fmul_rn(__fadd_rn(end.highest, log2f(end.sum)), kLn2);
}

// Merges the partials of all splits of a narrow tile and writes its rows. kThreads threads call it,
// from thread 0 on. Each has four values of a row at a time, so that registers hold many splits:
// read one after the other, the splits of a long sequence would take longer here than their
// computation.
template <int kHeadDim, int kThreads>
__device__ void MergeParts(const AttentionArgs& a, const AttentionUnit& unit, const Rows& rows,
                           int kv_head) {
  constexpr int kChunks = kHeadDim / 4, kAtOnce = 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows.count * kChunks; i += kThreads) {
    const int row = i / kChunks, dim = i % kChunks * 4;
    const int first = rows.FirstKey(row) / kSplitKeys, last = rows.LastKey(row) / kSplitKeys;
    float highest = 0, sum = 0;
    Four<float> total = {};
    for (int begin = first; begin <= last; begin += kAtOnce) {
      float2 states[kAtOnce];
      float4 values[kAtOnce];
      // Past the L1 (__ldcg), which may hold what was there before other CTAs wrote these.
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const float* const partial =
            PartialOf<kHeadDim, kTileRows>(a, unit, kv_head, min(begin + k, last), row);
        states[k] = __ldcg(reinterpret_cast<const float2*>(partial + kHeadDim));
        values[k] = __ldcg(reinterpret_cast<const float4*>(partial + dim));
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (begin + k > last) continue;
        const float later[4] = {values[k].x, values[k].y, values[k].z, values[k].w};
        if (begin + k == first) {
          highest = states[k].x;
          sum = states[k].y;
#pragma unroll
          for (int c = 0; c < 4; ++c) total.values[c] = later[c];
          continue;
        }
        const MergeFactors factors = MergeWeights(highest, sum, states[k].x, states[k].y);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          total.values[c] = MergeValues(factors, total.values[c], later[c]);
        }
      }
    }
    const int64_t token = rows.Token(row);
    const int head = kv_head * rows.group + rows.HeadInGroup(row);
    const int64_t at = token * a.out_stride + int64_t{head} * kHeadDim + dim;
    const RowEnd end(a, head, highest, sum);
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      StorePair(a, at + c, end.OutputOf(total.values[c]), end.OutputOf(total.values[c + 1]));
    }
    if (a.lse != nullptr && dim == 0) StoreLse(a, token, head, end);
  }
}

// The place of a lane's sums in a tile of kRows rows and one KV head.
template <int kHeadDim, int kRows, int kGroups>
struct Place {
  using State = Sums<kGroups>;
  // Groups of columns that lie in the head. Those of a wide tile may go beyond it.
  static constexpr int kInHead = kGroups * 8 < kHeadDim ? kGroups : kHeadDim / 8;
  const AttentionArgs& a;
  int kv_head;
  int first_row;      // in the tile
  int first_dim;      // of the head
  bool writes_state;  // highest and sum of the rows

  __device__ int RowOf(int i) const { return first_row + 8 * i; }
  // The dimension of the first of the lane's two columns in group j of 8.
  __device__ int DimOf(int j) const { return first_dim + 8 * j; }

  __device__ float* Partial(const AttentionUnit& unit, int split, int i) const {
    return PartialOf<kHeadDim, kRows>(a, unit, kv_head, split, RowOf(i));
  }

  __device__ void WritePartial(const AttentionUnit& unit, const Rows& rows, int split,
                               const State& sums) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (RowOf(i) < rows.count) Store(Partial(unit, split, i), i, sums);
    }
  }
  __device__ void Store(float* partial, int i, const State& sums) const {
#pragma unroll
    for (int j = 0; j < kInHead; ++j) {
      *reinterpret_cast<float2*>(partial + DimOf(j)) =
          float2{sums.values[j][2 * i], sums.values[j][2 * i + 1]};
    }
    if (writes_state) {
      *reinterpret_cast<float2*>(partial + kHeadDim) = float2{sums.highest[i], sums.sum[i]};
    }
  }

  // Loads past the L1 (__ldcg), which may hold what was there before other CTAs wrote these.
  __device__ void LoadPartial(const AttentionUnit& unit, int split, int i, State& sums) const {
    Load(Partial(unit, split, i), i, sums);
  }
  __device__ void Load(const float* partial, int i, State& sums) const {
    const auto load = [partial](int at) {
      return __ldcg(reinterpret_cast<const float2*>(partial + at));
    };
    const float2 state = load(kHeadDim);
    sums.highest[i] = state.x;
    sums.sum[i] = state.y;
#pragma unroll
    for (int j = 0; j < kInHead; ++j) {
      const float2 pair = load(DimOf(j));
      sums.values[j][2 * i] = pair.x;
      sums.values[j][2 * i + 1] = pair.y;
    }
  }
  // For latents, with whose 512 columns MergeParts is slower. Requests two splits at once, as
  // registers allow.
  __device__ void MergePartials(const AttentionUnit& unit, const Rows& rows, State& total) const {
    constexpr int kAtOnce = 2;
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
          if (first + k < unit.end_split) total.TakeIn(rows, RowOf(i), first + k, i, sums[k]);
        }
      }
    }
  }

  __device__ int HeadOf(const Rows& rows, int i) const {
    return kv_head * rows.group + rows.HeadInGroup(RowOf(i));
  }

  // The partial of a row, by its token and head: the sums over its keys so far.
  __device__ float* StateOf(const Rows& rows, int i) const {
    const int64_t row = rows.Token(RowOf(i)) * a.cache.num_kv_heads * rows.group + HeadOf(rows, i);
    return a.partials + row * PartialFloats(kHeadDim);
  }
  __device__ void StoreState(const Rows& rows, const State& sums) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (RowOf(i) < rows.count) Store(StateOf(rows, i), i, sums);
    }
  }
  // Merges the sums over later keys into those that StoreState left, and returns them in `sums`.
  __device__ void TakeInState(const Rows& rows, State& sums) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (RowOf(i) >= rows.count) continue;
      State state;
      Load(StateOf(rows, i), i, state);
      state.Merge(sums, i);
      sums.Copy(state, i);
    }
    __syncwarp();  // all lanes of a row have read its sums, which they may store next
  }

  __device__ void Write(const Rows& rows, const State& total) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (RowOf(i) >= rows.count) continue;
      const int64_t token = rows.Token(RowOf(i));
      const int head = HeadOf(rows, i);
      const int64_t at = token * a.out_stride + int64_t{head} * kHeadDim;
      const RowEnd end(a, head, total.highest[i], total.sum[i]);
#pragma unroll
      for (int j = 0; j < kInHead; ++j) {
        StorePair(a, at + DimOf(j), end.OutputOf(total.values[j][2 * i]),
                  end.OutputOf(total.values[j][2 * i + 1]));
      }
      if (a.lse != nullptr && writes_state) StoreLse(a, token, head, end);
    }
  }
};

// Replaces the values of keys outside [low, high] by zeros. The fragments have 16 keys from `first`
// on.
__device__ inline void KeepSeen(int first, int low, int high, uint32_t (&values)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first + half * 8 + static_cast<int>(threadIdx.x % 4) * 2;
    const uint32_t mask = (low <= key && key <= high ? 0x0000ffffu : 0) |
                          (low <= key + 1 && key + 1 <= high ? 0xffff0000u : 0);
    values[half] &= mask;
  }
}
template <int kCount>
__device__ bool HasNonFinite(const uint32_t (&values)[kCount]) {
  bool any = false;
#pragma unroll
  for (const uint32_t pair : values) {
    any |= (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
  }
  return any;
}
// Adds the products of the warp's rows [begin, end), one row after the other, with zeros in place
// of the values that the row does not see: zero times NaN would be NaN. Rare.
__device__ inline void AddRowByRow(const Rows& rows, int begin, int end, int first,
                                   const uint32_t (&weights)[4], const uint32_t (&values)[2],
                                   float (&to)[4]) {
  const int first_row = begin + static_cast<int>(threadIdx.x % kWarp) / 4;
  const float sums[4] = {to[0], to[1], to[2], to[3]};
#pragma unroll 1
  for (int row = begin; row < end; ++row) {
    uint32_t seen[2] = {values[0], values[1]};
    KeepSeen(first, rows.FirstKey(row), rows.LastKey(row), seen);
    float products[4] = {sums[0], sums[1], sums[2], sums[3]};
    ptx::MultiplyBf16(products, weights, seen);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (first_row + 8 * (c / 2) == row) to[c] = products[c];
    }
  }
}
// Adds weights [16, 16] · values [16, 8] to a group of columns of the warp's rows [begin, end).
// Each key in [from, to] is seen by at least one of the rows. Values of other keys may be anything.
__device__ inline void AddSeen(const Rows& rows, int begin, int end, int from, int to, int first,
                               const uint32_t (&weights)[4], uint32_t (&values)[2],
                               float (&sums)[4]) {
  KeepSeen(first, from, to, values);
  if (__any_sync(kAllLanes, HasNonFinite(values))) {
    AddRowByRow(rows, begin, end, first, weights, values, sums);
  } else {
    ptx::MultiplyBf16(sums, weights, values);
  }
}

}  // namespace tokamak::cuda::mma_attention
