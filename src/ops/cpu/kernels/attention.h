// One split of attention for a block of queries that share a KV head: a softmax over at most
// kKeySplit keys, taken in tiles of kKeyTile at absolute positions.
//
// Keys of a tile are transposed and values re-laid once for all rows of the block, after which
// both products are the same multiply as Linear's, with lanes over keys and over value dimensions.
// Each row's arithmetic depends on its own query and keys alone: a key that it does not see has
// weight exactly zero, and a tile that it does not see at all leaves its state as it was.
//
// Bound: reads 2 · keys · head_dim elements of cache per block of queries; 4 · rows · keys ·
// head_dim FLOPs.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/kernels/exp.h"
#include "ops/cpu/kernels/lanes.h"
#include "ops/cpu/kernels/multiply.h"

namespace tokamak::cpu {

template <class V>
struct AttentionKernel {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kVectors = 16 / kLanes;
  static constexpr float kNothing = -__builtin_inff();  // the highest of no scores

  const AttentionTask& task;
  const AttentionPartial& out;
  const int64_t rows = static_cast<int64_t>(task.num_tokens) * task.group;
  const int64_t padded = PadTo16(task.head_dim);
  float* const queries = task.scratch;               // [rows][head_dim], scaled
  float* const keys = queries + rows * padded;       // [kKeyTile / 16][head_dim][16]
  float* const values = keys + kKeyTile * padded;    // [padded / 16][kKeyTile][16]
  float* const scores = values + kKeyTile * padded;  // [rows][kKeyTile]

  static void Run(const AttentionTask& task, int64_t split, const AttentionPartial& out) {
    AttentionKernel kernel{task, out};
    switch (task.cache.dtype) {
      case DType::kF16:
        return kernel.template Split<2>(split, V::LoadHalf);
      case DType::kBF16:
        return kernel.template Split<2>(split, V::LoadBFloat16);
      default:
        return kernel.template Split<4>(
            split, [](const std::byte* p) { return V::Load(reinterpret_cast<const float*>(p)); });
    }
  }

  // Keys that token t of the block sees are [FirstKey(t), EndKey(t)).
  int64_t EndKey(int64_t t) const { return task.first_position + t + 1; }
  int64_t FirstKey(int64_t t) const {
    const int64_t end = EndKey(t);
    return task.window > 0 && end > task.window ? end - task.window : 0;
  }

  template <int kBytes, typename Read>
  void Split(int64_t split, Read read) {
    ScaleQueries();
    for (int64_t r = 0; r < rows; ++r) out.highest[r] = kNothing, out.sum[r] = 0;
    for (int64_t i = 0; i < rows * padded; i += kLanes) V::Store(out.values + i, V::Zero());
    // What any token of the block sees.
    const int64_t first = FirstKey(0), end = EndKey(task.num_tokens - 1);
    for (int64_t base = split * kKeySplit; base < (split + 1) * kKeySplit; base += kKeyTile) {
      const int begin = static_cast<int>(first <= base ? 0 : first - base);
      const int stop = static_cast<int>(end - base >= kKeyTile ? kKeyTile : end - base);
      if (begin < stop) Tile<kBytes>(base, begin, stop, read);
    }
  }

  void ScaleQueries() const {
    for (int64_t r = 0; r < rows; ++r) {
      const float* q = task.q + r / task.group * task.q_stride + r % task.group * task.head_dim;
      for (int i = 0; i < task.head_dim; ++i) queries[r * task.head_dim + i] = q[i] * task.scale;
    }
  }

  // Keys base + [begin, stop).
  template <int kBytes, typename Read>
  void Tile(int64_t base, int begin, int stop, Read read) const {
    const int first_panel = begin / 16, end_panel = (stop + 15) / 16;
    const std::byte* key_rows[kKeyTile];  // null: not in the range
    for (int j = 16 * first_panel; j < 16 * end_panel; ++j) key_rows[j] = nullptr;
    for (int j = begin; j < stop; ++j) {
      const int64_t position = base + j;
      const int64_t block = task.cache.block_table[position / task.cache.block_size];
      const int64_t offset =
          position % task.cache.block_size * static_cast<int64_t>(task.head_dim) * kBytes;
      const std::byte* data = task.cache.base + block * task.cache.block_stride + offset;
      key_rows[j] = data + task.cache.k_offset;
      LoadValues<kBytes>(data + task.cache.v_offset, j, read);
    }
    for (int panel = first_panel; panel < end_panel; ++panel) {
      LoadKeys<kBytes>(key_rows + 16 * panel, keys + panel * 16 * task.head_dim, read);
    }
    const int width = 16 * (end_panel - first_panel);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = scores + r * kKeyTile + 16 * first_panel;
      for (int i = 0; i < width; i += kLanes) V::Store(row + i, V::Zero());
    }
    Multiply<V>::Run({.tile = keys + first_panel * 16 * task.head_dim,
                      .panel_stride = 16 * task.head_dim,
                      .x = queries,
                      .x_stride = task.head_dim,
                      .k = task.head_dim,
                      .acc = scores + 16 * first_panel,
                      .acc_stride = kKeyTile},
                     rows, end_panel - first_panel);
    for (int64_t r = 0; r < rows; ++r) Soften(r, base, 16 * first_panel, 16 * end_panel);
    Multiply<V>::Run({.tile = values + begin * 16,
                      .panel_stride = kKeyTile * 16,
                      .x = scores + begin,
                      .x_stride = kKeyTile,
                      .k = stop - begin,
                      .acc = out.values,
                      .acc_stride = padded},
                     rows, static_cast<int>(padded / 16));
  }

  // 16 key rows to [head_dim][16].
  template <int kBytes, typename Read>
  void LoadKeys(const std::byte* const* key_rows, float* destination, Read read) const {
    for (int lane = 0; lane < 16; lane += kLanes) {
      for (int i = 0; i < task.head_dim; i += kLanes) {
        const int n = task.head_dim - i < kLanes ? task.head_dim - i : kLanes;
        F rows_of_keys[kLanes];
        for (int j = 0; j < kLanes; ++j) {
          const std::byte* source = key_rows[lane + j];
          rows_of_keys[j] =
              source == nullptr ? V::Zero() : ReadPart<kBytes>(source + i * kBytes, n, read);
        }
        V::Transpose(rows_of_keys);
        for (int j = 0; j < n; ++j) V::Store(destination + (i + j) * 16 + lane, rows_of_keys[j]);
      }
    }
  }

  // One value row to its place in [padded / 16][kKeyTile][16].
  template <int kBytes, typename Read>
  void LoadValues(const std::byte* source, int key, Read read) const {
    for (int i = 0; i < padded; i += kLanes) {
      const int n = task.head_dim - i < kLanes ? task.head_dim - i : kLanes;
      V::Store(values + (i / 16 * kKeyTile + key) * 16 + i % 16,
               n <= 0 ? V::Zero() : ReadPart<kBytes>(source + i * kBytes, n, read));
    }
  }

  // n elements, zeros after them.
  template <int kBytes, typename Read>
  static F ReadPart(const std::byte* source, int n, Read read) {
    if (n == kLanes) return read(source);
    alignas(64) std::byte buffer[64] = {};
    __builtin_memcpy(buffer, source, static_cast<size_t>(n) * kBytes);
    return read(buffer);
  }

  // One row's step of the online softmax over scores [begin, end) of the tile: scores become
  // weights relative to the new highest, sum and values are rescaled to it.
  void Soften(int64_t r, int64_t base, int begin, int end) const {
    float* row = scores + r * kKeyTile;
    const int64_t t = r / task.group;
    for (int64_t j = begin; j < FirstKey(t) - base && j < end; ++j) row[j] = kNothing;
    for (int64_t j = EndKey(t) - base > begin ? EndKey(t) - base : begin; j < end; ++j) {
      row[j] = kNothing;
    }
    Lanes<V> lanes;
    lanes.Fill(kNothing);
    ForEachVector(begin, end,
                  [&](int i, int v) { lanes.v[v] = V::Max(lanes.v[v], V::Load(row + i)); });
    const float before = out.highest[r];
    const float tile_highest = lanes.Max();
    const float highest = tile_highest > before ? tile_highest : before;
    if (highest == kNothing && AllUnseen(row, begin, end)) {
      for (int i = begin; i < end; i += kLanes) V::Store(row + i, V::Zero());
      return;
    }
    const F subtract = V::Broadcast(highest);
    lanes.Fill(0);
    ForEachVector(begin, end, [&](int i, int v) {
      const F weight = Exp<V>(V::Sub(V::Load(row + i), subtract));
      V::Store(row + i, weight);
      lanes.v[v] = V::Add(lanes.v[v], weight);
    });
    const F rescale = Exp<V>(V::Broadcast(before - highest));
    out.highest[r] = highest;
    out.sum[r] = out.sum[r] * V::First(rescale) + lanes.Sum();
    if (before == highest) return;  // the factor is 1
    float* value = out.values + r * padded;
    for (int64_t i = 0; i < padded; i += kLanes) {
      V::Store(value + i, V::Mul(V::Load(value + i), rescale));
    }
  }

  // Calls body(i, vector index among 16 lanes) over [begin, end), multiples of 16.
  template <typename Body>
  [[gnu::always_inline]] static inline void ForEachVector(int begin, int end, Body body) {
    for (int i = begin; i < end; i += 16) {
      for (int v = 0; v < kVectors; ++v) body(i + v * kLanes, v);
    }
  }

  // False when a score is NaN, which a maximum may pass over.
  static bool AllUnseen(const float* row, int begin, int end) {
    for (int i = begin; i < end; ++i) {
      if (!(row[i] == kNothing)) return false;
    }
    return true;
  }

  static void Merge(int64_t rows, int64_t head_dim, const AttentionPartial& from,
                    const AttentionPartial& into) {
    const int64_t padded = PadTo16(head_dim);
    for (int64_t r = 0; r < rows; ++r) {
      if (from.highest[r] == kNothing && from.sum[r] == 0) continue;  // saw no key
      const float highest = from.highest[r] > into.highest[r] ? from.highest[r] : into.highest[r];
      const F old_factor = Exp<V>(V::Broadcast(into.highest[r] - highest));
      const F new_factor = Exp<V>(V::Broadcast(from.highest[r] - highest));
      into.highest[r] = highest;
      into.sum[r] = into.sum[r] * V::First(old_factor) + from.sum[r] * V::First(new_factor);
      float* value = into.values + r * padded;
      const float* added = from.values + r * padded;
      for (int64_t i = 0; i < padded; i += kLanes) {
        V::Store(value + i, V::Add(V::Mul(V::Load(value + i), old_factor),
                                   V::Mul(V::Load(added + i), new_factor)));
      }
    }
  }
};

}  // namespace tokamak::cpu
