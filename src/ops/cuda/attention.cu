// out[t, h] = Σ_j softmax_j(scale · q[t, h] · k[j, g(h)]) · v[j, g(h)], the plain kernel: any cache
// type, head size, group, window and length, softcaps, sinks and ALiBi. q f32 or bf16 [T, heads ·
// key_dim]; keys and values as KvLayerView says, or decompressed from latents as LatentAttention
// says; out bf16 or f32 [T, heads · value_dim]; lse f32 [T, heads].
//
// A CTA of four warps takes a tile of 16 rows (attention_layout.h) through its keys in chunks of
// 32, which it brings to shared memory as f32. Each warp has four rows. For the scores a lane has a
// key; for the values it has every 32nd element of a head. Online softmax (arXiv:1805.02867) inside
// a split, merging between splits, and last with the sink. A wide tile of the plan is taken as
// kWideRows / kTileRows tiles.
//
// Values that are part of the keys are read from there. If shared memory does not suffice, a tile
// has half as many rows, and a chunk's values replace its keys: 99 KB suffice for every size.
//
// Bound: for decoding the bytes of K and V, each read once per tile; for prefill the plain FP32
// units, 4 · head_dim FLOPs per row and key. To decompress a key and its value takes 2 · latent ·
// (nope_dim + value_dim) FLOPs, for each tile anew. Other kernels use tensor cores; this one runs
// on every GPU.
//
// A row's bits depend on the row alone: sums follow absolute positions, and keys that the row does
// not see take no part in them, not even multiplied by zero. Where the compiler might fuse
// operations in one copy of the code and not in another, they are written as fmaf and __fmul_rn.
#include <cstring>
#include <type_traits>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/attention_splits.cuh"
#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/shared_bytes.h"

namespace tokamak::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRowsPerWarp = kTileRows / kWarps;
constexpr int kChunk = kWarp;  // keys; one per lane
static_assert(kSplitKeys % kChunk == 0);
constexpr int kPiece = 128;  // elements of a latent that are decompressed at a time

// Shared memory, in floats. Keys have an odd stride, so that lanes meet no bank twice.
struct Layout {
  __host__ __device__ Layout(const AttentionArgs& a, int padded_dim, bool is_tight)
      : key_dim(a.key_dim()),
        value_dim(a.value_dim()),
        padded(padded_dim),
        piece_dim(a.Expands() ? min(a.cache.ValueDim(), kPiece) : 0),
        tile_rows(is_tight ? kTileRows / 2 : kTileRows),
        values_in_keys(a.cache.values_in_keys && !a.Expands()),
        values_replace_keys(is_tight && !values_in_keys) {}
  __host__ __device__ int key_stride() const { return key_dim | 1; }
  __host__ __device__ int value_stride() const { return values_in_keys ? key_stride() : padded; }
  __host__ __device__ int values() const {
    if (values_in_keys) return key_dim - value_dim;
    return values_replace_keys ? 0 : kChunk * key_stride();
  }
  // Lanes read the values of padded_dim elements from each row.
  __host__ __device__ int queries() const {
    const int end = values() + (kChunk - 1) * value_stride() + padded;
    return max(end, kChunk * key_stride());
  }
  __host__ __device__ int pieces() const { return queries() + tile_rows * key_dim; }
  __host__ __device__ int piece_stride() const { return piece_dim | 1; }
  __host__ __device__ int floats() const {
    return pieces() + (piece_dim > 0 ? kChunk * piece_stride() : 0);
  }

  int key_dim;
  int value_dim;
  int padded;     // value_dim rounded up to whole warps
  int piece_dim;  // of latents, if keys and values are decompressed from them; else 0
  int tile_rows;  // at a time
  bool values_in_keys, values_replace_keys;
};

// Eight elements, aligned to their size, but to no more than 16 bytes.
template <typename Cache>
__device__ void LoadEight(const typename Cache::Storage* from, float* to) {
  using Storage = typename Cache::Storage;
  using Vector = std::conditional_t<sizeof(Storage) == 1, uint2, uint4>;
  constexpr int kVectors = 8 * sizeof(Storage) / sizeof(Vector);
  Vector vectors[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) vectors[i] = reinterpret_cast<const Vector*>(from)[i];
  Storage raw[8];
  memcpy(raw, vectors, sizeof(raw));
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = Cache::Load(raw[i]);
}

// A row's sums over some of its keys.
template <int kDims>
struct Sums {
  float highest;  // score
  float sum;      // of e^(score - highest)
  float values[kDims];

  __device__ void Clear() {
    highest = -INFINITY;
    sum = 0;
#pragma unroll
    for (int j = 0; j < kDims; ++j) values[j] = 0;
  }
  // Merges a later split into this one.
  __device__ void Merge(const Sums& other) {
    const float both = fmaxf(highest, other.highest);
    const float factor = expf(highest - both);
    const float weight = expf(other.highest - both);
    highest = both;
    sum = fmaf(other.sum, weight, __fmul_rn(sum, factor));
#pragma unroll
    for (int j = 0; j < kDims; ++j) {
      values[j] = fmaf(other.values[j], weight, __fmul_rn(values[j], factor));
    }
  }
};

// The place of a key and of its value, in bytes from a layer's first key and value.
struct KeyRow {
  int64_t key;  // -1: no row of the tile sees it
  int64_t value;
};

// Rows of a unit from `first` on, as many as fit, and one KV head. A warp's rows are warp, warp +
// kWarps, ...
template <typename Cache, int kDims, bool kExpands>
class Tile {
 public:
  using Storage = typename Cache::Storage;

  __device__ Tile(const AttentionArgs& a, const AttentionUnit& unit, const Layout& layout,
                  int first, float* shared, KeyRow* key_rows)
      : a_(a),
        unit_(unit),
        first_(first),
        num_rows_(min(unit.num_rows - first, layout.tile_rows)),
        table_(a.block_tables + a.table_rows[unit.sequence] * a.table_stride),
        kv_head_(static_cast<int>(blockIdx.y)),
        warp_(static_cast<int>(threadIdx.x / kWarp)),
        lane_(static_cast<int>(threadIdx.x % kWarp)),
        layout_(layout),
        keys_(shared),
        values_(shared + layout_.values()),
        queries_(shared + layout_.queries()),
        pieces_(shared + layout_.pieces()),
        key_rows_(key_rows) {
    const int first_row = unit.first_row + first;
    tile_first_ = FirstKey(first_row);
    tile_last_ = LastKey(first_row + num_rows_ - 1);
    my_rows_ = (num_rows_ - warp_ + kWarps - 1) / kWarps;
  }

  __device__ void LoadQueries() {
    const int key_dim = layout_.key_dim;
    for (int i = static_cast<int>(threadIdx.x); i < num_rows_ * key_dim; i += kThreads) {
      const int row = unit_.first_row + first_ + i / key_dim;
      const int64_t at = Token(row) * a_.q_stride + int64_t{Head(row)} * key_dim + i % key_dim;
      queries_[i] = a_.q_bf16 ? BF16::Load(static_cast<const uint16_t*>(a_.q)[at])
                              : static_cast<const float*>(a_.q)[at];
    }
  }

  // The sums of this warp's rows over one split. All warps of the CTA call this together.
  __device__ void ComputeSplit(int split, Sums<kDims> (&sums)[kRowsPerWarp]) {
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) sums[i].Clear();
    const int begin = max(split * kSplitKeys, tile_first_ / kChunk * kChunk);
    const int end = min((split + 1) * kSplitKeys, tile_last_ + 1);
    for (int first = begin; first < end; first += kChunk) {
      LoadChunk(first);
      float weights[kRowsPerWarp];
      Score(first, weights);
      Weigh(first, weights, sums);
      if (layout_.values_replace_keys) {
        __syncthreads();  // all warps have used the keys
        CopyValues();
        __syncthreads();
      }
      AddValues(first, weights, sums);
    }
  }

  // Computes the unit's splits: into the workspace if they are a part, else into the output.
  __device__ void Compute() {
    Sums<kDims> total[kRowsPerWarp];
    Sums<kDims> sums[kRowsPerWarp];
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) total[i].Clear();
    for (int split = unit_.begin_part; split < unit_.end_part; ++split) {
      ComputeSplit(split, sums);
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        if (i >= my_rows_) continue;
        if (unit_.IsPart()) {
          WritePartial(split, i, sums[i]);
        } else {
          TakeIn(RowOf(i), split, sums[i], total[i]);
        }
      }
    }
    if (unit_.IsPart()) return;
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      if (i < my_rows_) Write(RowOf(i), total[i]);
    }
  }

  // Merges all splits from the workspace and writes the output.
  __device__ void MergePartials() {
    for (int i = 0; i < my_rows_; ++i) {
      Sums<kDims> total;
      total.Clear();
      for (int split = unit_.begin_split; split < unit_.end_split; ++split) {
        const float* partial = Partial(split, i);
        Sums<kDims> sums;
        // Other CTAs wrote these, so this one's L1 must not serve them.
        sums.highest = __ldcg(partial + layout_.value_dim);
        sums.sum = __ldcg(partial + layout_.value_dim + 1);
#pragma unroll
        for (int j = 0; j < kDims; ++j) {
          const int d = lane_ + j * kWarp;
          sums.values[j] = d < layout_.value_dim ? __ldcg(partial + d) : 0.0f;
        }
        TakeIn(RowOf(i), split, sums, total);
      }
      Write(RowOf(i), total);
    }
  }

 private:
  // Returns the number of the warp's row i in the sequence; the functions below take such numbers.
  __device__ int RowOf(int i) const { return unit_.first_row + RowOfUnit(i); }
  __device__ int RowOfUnit(int i) const { return first_ + warp_ + i * kWarps; }
  __device__ int64_t Token(int row) const { return unit_.first_token + row / a_.group; }
  __device__ int Head(int row) const { return kv_head_ * a_.group + row % a_.group; }
  __device__ int Position(int row) const { return unit_.first_position + row / a_.group; }
  __device__ int FirstKey(int row) const {
    return a_.window > 0 ? max(0, Position(row) + 1 - a_.window) : 0;
  }
  __device__ int LastKey(int row) const { return max(Position(row), unit_.shared_last_key); }
  __device__ float* Partial(int split, int i) const {
    const int64_t index = unit_.partial + (split - unit_.begin_split);
    const int64_t row = (index * a_.cache.num_kv_heads + kv_head_) * kTileRows + RowOfUnit(i);
    return a_.partials + row * PartialFloats(layout_.value_dim);
  }

  __device__ void WritePartial(int split, int i, const Sums<kDims>& sums) {
    float* const partial = Partial(split, i);
#pragma unroll
    for (int j = 0; j < kDims; ++j) {
      const int d = lane_ + j * kWarp;
      if (d < layout_.value_dim) partial[d] = sums.values[j];
    }
    if (lane_ == 0) {
      partial[layout_.value_dim] = sums.highest;
      partial[layout_.value_dim + 1] = sums.sum;
    }
  }

  // Loads keys [first, first + kChunk), and their values if those have a place. Keys that no row of
  // the tile sees may have no block; they become zeros.
  __device__ void LoadChunk(int first) {
    const KvLayerView& cache = a_.cache;
    constexpr int64_t kBytes = sizeof(Storage);
    __syncthreads();  // all warps have used the chunk before
    if (threadIdx.x < kChunk) {
      const int key = first + static_cast<int>(threadIdx.x);
      KeyRow place = {.key = -1, .value = -1};
      if (tile_first_ <= key && key <= tile_last_) {
        const int64_t block = table_[key / cache.block_size] * cache.block_stride;
        const int64_t row =
            int64_t{kExpands ? 0 : kv_head_} * cache.block_size + key % cache.block_size;
        place = {.key = block + row * cache.head_dim * kBytes,
                 .value = block + row * cache.ValueDim() * kBytes};
      }
      key_rows_[threadIdx.x] = place;
    }
    __syncthreads();
    if constexpr (kExpands) {
      Expand();
    } else {
      CopyRows(cache.k_offset, &KeyRow::key, cache.head_dim, cache.head_dim, keys_,
               layout_.key_stride());
      if (!layout_.values_in_keys && !layout_.values_replace_keys) CopyValues();
    }
    __syncthreads();
  }
  __device__ void CopyValues() {
    const int dim = a_.cache.ValueDim();
    CopyRows(a_.cache.v_offset, &KeyRow::value, dim, dim, values_, layout_.padded);
  }

  // Copies the first `dim` elements of each of the chunk's rows, which have `step` elements.
  __device__ void CopyRows(int64_t offset, int64_t KeyRow::*row, int dim, int step, float* to,
                           int stride) {
    constexpr int64_t kVector = sizeof(uint4);
    const std::byte* const base = a_.cache.base + offset;
    const bool aligned = dim % 8 == 0 && step % 8 == 0 && a_.cache.block_stride % kVector == 0 &&
                         reinterpret_cast<int64_t>(base) % kVector == 0;
    if (aligned) {
      CopyRows<8>(base, row, dim, to, stride);
    } else {
      CopyRows<1>(base, row, dim, to, stride);
    }
  }
  // kStep elements at a time.
  template <int kStep>
  __device__ void CopyRows(const std::byte* base, int64_t KeyRow::*row, int dim, float* to,
                           int stride) {
    const int steps = dim / kStep;
    for (int i = static_cast<int>(threadIdx.x); i < kChunk * steps; i += kThreads) {
      const int key = i / steps;
      const int d = i % steps * kStep;
      float values[kStep] = {};
      if (const int64_t bytes = key_rows_[key].*row; bytes >= 0) {
        const auto* from = reinterpret_cast<const Storage*>(base + bytes) + d;
        if constexpr (kStep == 8) {
          LoadEight<Cache>(from, values);
        } else {
          values[0] = Cache::Load(*from);
        }
      }
#pragma unroll
      for (int j = 0; j < kStep; ++j) to[key * stride + d + j] = values[j];
    }
  }

  // Decompresses the chunk's keys and values of the CTA's head, from one piece of the latents after
  // the other. The lanes of a warp have different keys and the same row of a weight.
  __device__ void Expand() {
    const KvLayerView& cache = a_.cache;
    const int latent = cache.ValueDim();
    const int rotated = cache.head_dim - latent;
    const int nope = layout_.key_dim - rotated;
    const auto copy = [&](int from, int dim, float* to, int stride) {
      constexpr int64_t kBytes = sizeof(Storage);
      CopyRows(cache.k_offset + from * kBytes, &KeyRow::key, dim, cache.head_dim, to, stride);
    };
    copy(0, rotated, keys_, layout_.key_stride());
    for (int first = 0; first < latent; first += kPiece) {
      const int cols = min(kPiece, latent - first);
      if (first > 0) __syncthreads();  // all warps have used the piece before
      copy(rotated + first, cols, pieces_, layout_.piece_stride());
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kChunk * (nope + layout_.value_dim);
           i += kThreads) {
        const int key = i % kChunk;
        const int d = i / kChunk;  // of the key, then of the value
        const bool is_key = d < nope;
        const int v = d - nope;
        float& sum = is_key ? keys_[key * layout_.key_stride() + rotated + d]
                            : values_[key * layout_.padded + v];
        const void* const weights = is_key ? a_.w_uk : a_.w_uv;
        const int64_t row =
            is_key ? int64_t{kv_head_} * nope + d : int64_t{kv_head_} * layout_.value_dim + v;
        const float* const x = pieces_ + key * layout_.piece_stride();
        float total = first == 0 ? 0.0f : sum;
        for (int k = 0; k < cols; ++k) {
          const int64_t at = row * latent + first + k;
          const float weight = a_.weights_bf16
                                   ? BF16::Load(static_cast<const uint16_t*>(weights)[at])
                                   : static_cast<const float*>(weights)[at];
          total = fmaf(weight, x[k], total);
        }
        sum = total;
      }
    }
  }

  // Whether the row sees any, or a given one, of the keys of a chunk.
  __device__ bool SeesChunk(int row, int first) const {
    return first <= LastKey(row) && FirstKey(row) < first + kChunk;
  }
  __device__ bool Sees(int row, int key) const {
    return key <= LastKey(row) && FirstKey(row) <= key;
  }

  // Softcap and ALiBi.
  __device__ float Edited(float score, int row, int key) const {
    if (a_.softcap > 0) score = __fmul_rn(a_.softcap, tanhf(__fdiv_rn(score, a_.softcap)));
    if (a_.slopes != nullptr) {
      score = fmaf(a_.slopes[Head(row)], static_cast<float>(key - Position(row)), score);
    }
    return score;
  }

  // scores[i]: of the warp's row i and this lane's key.
  __device__ void Score(int first, float (&scores)[kRowsPerWarp]) {
    const int key_dim = layout_.key_dim;
    const float* key = keys_ + lane_ * layout_.key_stride();
    const float* query = queries_ + warp_ * key_dim;
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) scores[i] = 0;
    for (int d = 0; d < key_dim; ++d) {
      const float k = key[d];
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        if (i < my_rows_) scores[i] = fmaf(query[i * kWarps * key_dim + d], k, scores[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int key = first + lane_;
      const bool sees = i < my_rows_ && Sees(RowOf(i), key);
      scores[i] = sees ? Edited(__fmul_rn(scores[i], a_.scale), RowOf(i), key) : -INFINITY;
    }
  }

  // Turns scores into weights relative to the highest score so far. Scores that are not finite give
  // NaN.
  __device__ void Weigh(int first, float (&scores)[kRowsPerWarp],
                        Sums<kDims> (&sums)[kRowsPerWarp]) {
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      if (i >= my_rows_ || !SeesChunk(RowOf(i), first)) continue;
      const float highest = fmaxf(sums[i].highest, WarpMax(scores[i]));
      const float factor = expf(sums[i].highest - highest);
      sums[i].highest = highest;
      scores[i] = expf(scores[i] - highest);
      sums[i].sum = fmaf(sums[i].sum, factor, WarpSum(scores[i]));
#pragma unroll
      for (int j = 0; j < kDims; ++j) sums[i].values[j] *= factor;
    }
  }

  __device__ void AddValues(int first, const float (&weights)[kRowsPerWarp],
                            Sums<kDims> (&sums)[kRowsPerWarp]) {
    for (int key = 0; key < kChunk; ++key) {
      const float* from = values_ + key * layout_.value_stride();
      float values[kDims];
#pragma unroll
      for (int j = 0; j < kDims; ++j) values[j] = from[lane_ + j * kWarp];
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        const float weight = __shfl_sync(kAllLanes, weights[i], key);
        if (i >= my_rows_ || !Sees(RowOf(i), first + key)) continue;
#pragma unroll
        for (int j = 0; j < kDims; ++j) {
          sums[i].values[j] = fmaf(weight, values[j], sums[i].values[j]);
        }
      }
    }
  }

  // Merges a split into the row's total, if the row sees any of it.
  __device__ void TakeIn(int row, int split, const Sums<kDims>& sums, Sums<kDims>& total) const {
    const int first = FirstKey(row) / kSplitKeys;
    if (split < first || split > LastKey(row) / kSplitKeys) return;
    if (split == first) {
      total = sums;
    } else {
      total.Merge(sums);
    }
  }

  // Takes the sink into the row's total and writes the output. Adds zero, which makes a negative
  // zero positive. Whether a zero is negative may depend on the tile that computed it.
  __device__ void Write(int row, Sums<kDims>& total) const {
    // The sink is a score without a value.
    if (a_.sinks != nullptr) total.Merge({.highest = a_.sinks[Head(row)], .sum = 1, .values = {}});
    const int64_t at = Token(row) * a_.out_stride + int64_t{Head(row)} * layout_.value_dim;
#pragma unroll
    for (int j = 0; j < kDims; ++j) {
      const int d = lane_ + j * kWarp;
      if (d >= layout_.value_dim) continue;
      const float value = __fadd_rn(__fdiv_rn(total.values[j], total.sum), 0.0f);
      if (a_.out_bf16) {
        static_cast<uint16_t*>(a_.out)[at + d] = BF16::Store(value);
      } else {
        static_cast<float*>(a_.out)[at + d] = value;
      }
    }
    if (a_.lse != nullptr && lane_ == 0) {
      a_.lse[Token(row) * a_.lse_stride + Head(row)] = __fadd_rn(total.highest, logf(total.sum));
    }
  }

  const AttentionArgs& a_;
  const AttentionUnit& unit_;
  const int first_, num_rows_;  // of the unit's rows
  const int32_t* table_;        // the sequence's blocks
  const int kv_head_, warp_, lane_;
  const Layout layout_;
  float* keys_;                 // [kChunk, key_dim], stride key_stride()
  float* values_;               // [kChunk, padded], stride value_stride()
  float* queries_;              // [num_rows, key_dim]
  float* pieces_;               // [kChunk, piece_dim], stride piece_stride(), if kExpands
  KeyRow* key_rows_;            // [kChunk]
  int tile_first_, tile_last_;  // keys that any row of the tile sees
  int my_rows_;                 // of this warp
};

constexpr int kTilesOfWide = kWideRows / kTileRows;

// Returns unit `i` of the plan, of which each wide unit counts as kTilesOfWide. These share its
// partials: each takes one per split, beside the others' of its tile. The last ones may have no
// rows.
__device__ AttentionUnit UnitAt(const AttentionHeader& plan, int i) {
  const auto* units = reinterpret_cast<const AttentionUnit*>(&plan + 1);
  if (i < plan.num_units) return units[i];
  const int tile = (i - plan.num_units) % kTilesOfWide;
  AttentionUnit unit = units[plan.num_units + (i - plan.num_units) / kTilesOfWide];
  unit.first_row += tile * kTileRows;
  unit.num_rows = max(0, min(unit.num_rows - tile * kTileRows, kTileRows));
  unit.partial += tile * (unit.end_split - unit.begin_split);
  return unit;
}

// The units that the kernel computes: the plan's narrow and wide ones, or those of sequences whose
// keys and values are decompressed.
template <bool kExpands>
__device__ int NumUnits(const AttentionHeader& plan) {
  return kExpands ? plan.num_expanded_units : plan.num_units + plan.num_wide_units * kTilesOfWide;
}
template <bool kExpands>
__device__ AttentionUnit UnitOf(const AttentionHeader& plan, int i) {
  if constexpr (kExpands) {
    const auto* units = reinterpret_cast<const AttentionUnit*>(&plan + 1);
    return units[plan.num_units + plan.num_wide_units + i];
  } else {
    return UnitAt(plan, i);
  }
}

template <typename Cache, int kDims, bool kExpands>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(const __grid_constant__ AttentionArgs a, bool is_tight) {
  DYNAMIC_SHARED(shared, float);
  SHARED(key_rows, KeyRow[kChunk]);
  SHARED(is_last, bool);
  const Layout layout(a, kDims * kWarp, is_tight);
  const int num_units = NumUnits<kExpands>(*a.plan);
  for (int u = static_cast<int>(blockIdx.x); u < num_units; u += static_cast<int>(gridDim.x)) {
    const AttentionUnit unit = UnitOf<kExpands>(*a.plan, u);
    if (unit.num_rows == 0) continue;
    const auto for_each_tile = [&](auto run) {
      for (int first = 0; first < unit.num_rows; first += layout.tile_rows) {
        Tile<Cache, kDims, kExpands> tile(a, unit, layout, first, shared, key_rows);
        run(tile);
      }
    };
    for_each_tile([](auto& tile) {
      __syncthreads();  // the last tile's queries have been used
      tile.LoadQueries();
      tile.Compute();
    });
    if (!unit.IsPart()) continue;
    const auto sync = [] { __syncthreads(); };
    if (IsLastPart(a, unit, blockIdx.y, is_last, sync)) {
      for_each_tile([](auto& tile) { tile.MergePartials(); });
    }
  }
}

template <typename Cache, int kDims, bool kExpands = false>
cudaError_t Launch(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  constexpr int64_t kStaticBytes = 1 << 10;  // at most
  const auto bytes_of = [&](bool is_tight) {
    return Layout(args, kDims * kWarp, is_tight).floats() * static_cast<int64_t>(sizeof(float));
  };
  const bool is_tight = !kExpands && bytes_of(false) > MaxSharedBytes() - kStaticBytes;
  const auto bytes = static_cast<size_t>(bytes_of(is_tight));
  const auto kernel = &AttentionKernel<Cache, kDims, kExpands>;
  const cudaError_t error = AllowSharedMemory(kernel, bytes);
  if (error != cudaSuccess) return error;
  const int heads = kExpands ? args.num_heads : args.cache.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(ctas), static_cast<unsigned>(heads));
  return LaunchKernel(kernel, grid, kThreads, bytes, stream, args, is_tight);
}

template <typename Cache>
cudaError_t LaunchFor(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  const int dim = args.value_dim();
  if (args.Expands()) {
    return dim <= 128 ? Launch<Cache, 4, true>(args, ctas, stream)
                      : Launch<Cache, kMaxExpandedDim / kWarp, true>(args, ctas, stream);
  }
  if (dim <= 64) return Launch<Cache, 2>(args, ctas, stream);
  if (dim <= 128) return Launch<Cache, 4>(args, ctas, stream);
  if (dim <= 256) return Launch<Cache, 8>(args, ctas, stream);
  return Launch<Cache, kMaxValueDim / kWarp>(args, ctas, stream);
}

}  // namespace

cudaError_t LaunchAttention(const AttentionArgs& args, int ctas, cudaStream_t stream) {
  switch (args.cache.dtype) {
    case DType::kF32:
      return LaunchFor<F32>(args, ctas, stream);
    case DType::kF16:
      return LaunchFor<F16>(args, ctas, stream);
    case DType::kF8E4M3:
      return LaunchFor<E4M3>(args, ctas, stream);
    default:
      return LaunchFor<BF16>(args, ctas, stream);
  }
}

}  // namespace tokamak::cuda
