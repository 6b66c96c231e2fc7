// One split of attention for a block of queries that share a KV head: a softmax over at most
// kKeySplit keys. Computes scores, then weights relative to the highest, then values.
//
// Both products use register blocks of rows × 16 columns: keys in the first, value dimensions in
// the second. Few rows read the cache as it is stored, each element once per register block; many
// rows share a tile of it converted to f32, which gives the same bits. Each sum is one chain over
// ascending dimensions, or over the split's ascending keys. A row depends only on its own query and
// keys: a key that it does not see has weight exactly zero.
//
// If one KV head's keys are rows for many query heads (ops/mla.h), queries go into panels instead,
// and lanes are queries.
//
// Bound: keys · (head_dim + value_dim) elements of cache per block of queries; 2 · rows · keys ·
// (head_dim + value_dim) FLOPs.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/kernels/cache_reader.h"
#include "ops/cpu/kernels/constant.h"
#include "ops/cpu/kernels/exp.h"
#include "ops/cpu/kernels/lanes.h"
#include "ops/cpu/kernels/multiply.h"
#include "ops/cpu/kernels/prefetch.h"

namespace tokamak::cpu {

template <class V>
struct AttentionKernel {
  using F = typename V::F;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kVectors = 16 / kLanes;
  static constexpr int kPanels = kKeySplit / kKeyPanel;
  static constexpr float kNothing = -__builtin_inff();  // the highest score of no keys
  using F32 = CacheReader<V, DType::kF32>;
  // Rows that read the cache as it is stored. Converting 16-bit elements again for four register
  // blocks takes less time than writing a tile of them: a few drafts with the heads of a group.
  template <class Reader>
  static constexpr int kFewRows =
      Reader::kType == DType::kF16 || Reader::kType == DType::kBF16 ? 4 * V::kMaxRows : V::kMaxRows;

  // Keys [begin, stop) of a split.
  struct Range {
    int begin, stop;
    bool empty() const { return begin >= stop; }
    int first_panel() const { return begin / kKeyPanel; }
    int end_panel() const { return (stop + kKeyPanel - 1) / kKeyPanel; }
    Range Within(int first, int end) const {
      return {begin > first ? begin : first, stop < end ? stop : end};
    }
  };

  const AttentionTask& task;
  const AttentionPartial& out;
  const int64_t base;  // position of the split's first key
  const int64_t rows = static_cast<int64_t>(task.num_tokens) * task.group;
  const int64_t padded = PadTo16(task.value_dim);
  const int64_t padded_keys = PadTo16(task.head_dim);
  const int64_t padded_rows = PadTo16(rows);
  // Scaled: [rows][head_dim], or [rows / 16][head_dim][16] if keys are rows.
  float* const queries = task.scratch;
  float* const weights = queries + padded_rows * padded_keys;  // [rows][kKeySplit]; scores at first
  // Scores [kKeyTile][padded_rows], if keys are rows.
  float* const scores_by_key = weights + rows * kKeySplit;
  // [kKeyTile / 16][head_dim][16] or [kKeyTile][padded_keys] of keys, or [kKeyTile][padded] of
  // values.
  float* const tile = scores_by_key + kKeyTile * padded_rows;
  // Starts of the keys and values of each 16 positions, by panel of the split.
  const std::byte* key_panels[kPanels] = {};
  const std::byte* value_rows[kPanels] = {};
  // Few rows run at the speed of memory: each panel prefetches what is read kAhead panels later,
  // first keys, then values, then the next split's keys.
  static constexpr int kAhead = 4;
  const std::byte* after_keys[kPanels] = {};
  const std::byte* after_values[kPanels] = {};

  static void Run(const AttentionTask& task, int64_t split, const AttentionPartial& out) {
    AttentionKernel kernel{task, out, split * kKeySplit};
    switch (task.cache.dtype) {
      case DType::kF16:
        return kernel.template Split<CacheReader<V, DType::kF16>>();
      case DType::kBF16:
        return kernel.template Split<CacheReader<V, DType::kBF16>>();
      case DType::kF8E4M3:
        return kernel.template Split<CacheReader<V, DType::kF8E4M3>>();
      case DType::kQ8_0:
        return kernel.template Split<CacheReader<V, DType::kQ8_0>>();
      default:
        return kernel.template Split<F32>();
    }
  }

  // The keys of the split that any of `num` rows sees.
  Range Seen(int64_t row, int64_t num) const {
    const int64_t end = EndKey((row + num - 1) / task.group) - base;
    const int64_t begin = FirstKey(row / task.group) - base;
    return {static_cast<int>(begin < 0           ? 0
                             : begin < kKeySplit ? begin
                                                 : kKeySplit),
            static_cast<int>(end < 0           ? 0
                             : end < kKeySplit ? end
                                               : kKeySplit)};
  }
  // Token t of the block sees the keys [FirstKey(t), EndKey(t)).
  int64_t EndKey(int64_t t) const {
    return task.num_keys > 0 ? task.num_keys : task.first_position + t + 1;
  }
  int64_t FirstKey(int64_t t) const {
    const int64_t seen = task.first_position + t + 1;  // without a window, of a causal query
    return task.window > 0 && seen > task.window ? seen - task.window : 0;
  }

  template <class Reader>
  void Split() {
    const Range seen = Seen(0, rows);
    const bool few = rows <= kFewRows<Reader>;
    const bool aligned = KeysInPanels(task.cache.block_size);
    const bool in_rows = task.cache.keys_in_rows;
    const bool stream = few && aligned && !in_rows;
    const bool is_f32 = Reader::kType == DType::kF32;
    const bool keys_as_stored = stream || (aligned && !in_rows && is_f32);
    const bool values_as_stored = (stream || (aligned && is_f32)) && task.value_dim % 16 == 0;
    if (aligned) FindPanels(seen);
    if (stream) LookAhead(seen);
    if (in_rows) {
      ScaleQueriesToPanels();
    } else {
      ScaleQueries();
    }
    for (int64_t i = 0; i < rows * padded; i += kLanes) V::Store(out.values + i, V::Zero());

    // Tiles of keys stay in the nearest cache for all rows. A single register block reads each key
    // once and needs no tiles.
    const int step = stream && rows <= V::kMaxRows ? kKeySplit : kKeyTile;
    for (int first = seen.begin / step * step; first < seen.stop; first += step) {
      const Range some = seen.Within(first, first + step);
      if (in_rows) {
        ScoreKeyRows<Reader>(some);
      } else if (keys_as_stored) {
        ForRowGroups(some, [&](int64_t row, auto num, Range range) {
          if (stream) {
            Scores<Reader, num.value, true>(row, range);
          } else {
            Scores<F32, num.value, false>(row, range);
          }
        });
      } else {
        ConvertKeys<Reader>(some);
        ForRowGroups(some, [&](int64_t row, auto num, Range range) {
          Scores<F32, num.value, false>(row, range);
        });
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t group = r / V::kMaxRows * V::kMaxRows;
      Soften(r, Seen(group, rows - group < V::kMaxRows ? rows - group : V::kMaxRows));
    }
    // Uses a tile of values for all columns before the next tile, so that memory is read in order.
    for (int first = seen.begin / kKeyTile * kKeyTile; first < seen.stop; first += kKeyTile) {
      const Range some = seen.Within(first, first + kKeyTile);
      if (values_as_stored) {
        ForRowGroups(some, [&](int64_t row, auto num, Range range) {
          if (stream) {
            Values<Reader, num.value, true>(row, range, task.cache.value_stride);
          } else {
            Values<F32, num.value, false>(row, range, task.cache.value_stride);
          }
        });
      } else {
        ConvertValues<Reader>(some);
        ForRowGroups(some, [&](int64_t row, auto num, Range range) {
          Values<F32, num.value, false>(row, range, padded * 4);
        });
      }
    }
  }

  // Calls body(first row, number of rows as a constant, keys of `some` that they see) for each
  // register block of rows.
  template <typename Body>
  void ForRowGroups(Range some, Body body) const {
    for (int64_t row = 0; row < rows; row += V::kMaxRows) {
      const int64_t num = rows - row < V::kMaxRows ? rows - row : V::kMaxRows;
      const Range range = Seen(row, num).Within(some.begin, some.stop);
      if (range.empty()) continue;
      switch (num) {
        case 1:
          body(row, Rows<1>(), range);
          break;
        case 2:
          body(row, Rows<2>(), range);
          break;
        case 3:
          body(row, Rows<3>(), range);
          break;
        case 4:
          body(row, Rows<4>(), range);
          break;
        case 5:
          body(row, Rows<5>(), range);
          break;
        default:
          body(row, Rows<6>(), range);
          break;
      }
    }
  }
  // The number of rows of a register block, at most kMaxRows.
  template <int kRows>
  using Rows = Constant<(kRows < V::kMaxRows ? kRows : V::kMaxRows)>;

  const std::byte* BlockOf(int64_t position) const {
    const int64_t block = task.cache.block_table[position / task.cache.block_size];
    return task.cache.base + block * task.cache.block_stride;
  }

  void FindPanels(Range range) {
    for (int panel = range.first_panel(); panel < range.end_panel(); ++panel) {
      const int64_t position = base + static_cast<int64_t>(panel) * kKeyPanel;
      key_panels[panel] = KeyAt(position);
      value_rows[panel] = ValueAt(position);
    }
  }
  // If keys are in panels, `position` must be the first of its panel.
  const std::byte* KeyAt(int64_t position) const {
    return BlockOf(position) + task.cache.k_offset +
           position % task.cache.block_size * task.cache.key_stride;
  }
  const std::byte* ValueAt(int64_t position) const {
    return BlockOf(position) + task.cache.v_offset +
           position % task.cache.block_size * task.cache.value_stride;
  }

  void LookAhead(Range range) {
    const int first = range.first_panel(), num = range.end_panel() - first;
    const int64_t next = base + kKeySplit;
    const auto at = [&](int i) {
      if (i < num) return key_panels[first + i];
      if (i < 2 * num) return value_rows[first + i - num];
      const int64_t position = next + (i - 2 * num) * kKeyPanel;
      if (position >= EndKey(task.num_tokens - 1)) return key_panels[first];  // nothing follows
      return KeyAt(position);
    };
    for (int i = 0; i < num; ++i) {
      after_keys[first + i] = at(i + kAhead);
      after_values[first + i] = at(num + i + kAhead);
    }
  }

  // Scores are in powers of two: score · log2 e.
  void ScaleQueries() const {
    const float scale = task.scale * 1.44269504f;
    for (int64_t r = 0; r < rows; ++r) {
      const float* q = task.q + r / task.group * task.q_stride + r % task.group * task.head_dim;
      float* scaled = queries + r * task.head_dim;
      int i = 0;
      for (; i + kLanes <= task.head_dim; i += kLanes) {
        V::Store(scaled + i, V::Mul(V::Load(q + i), V::Broadcast(scale)));
      }
      for (; i < task.head_dim; ++i) scaled[i] = q[i] * scale;
    }
  }
  void ScaleQueriesToPanels() const {
    const float scale = task.scale * 1.44269504f;
    for (int64_t r = 0; r < padded_rows; ++r) {
      const float* q = task.q + r / task.group * task.q_stride + r % task.group * task.head_dim;
      float* lane = queries + r / 16 * 16 * task.head_dim + r % 16;
      for (int i = 0; i < task.head_dim; ++i) lane[i * 16] = r < rows ? q[i] * scale : 0;
    }
  }

  // Scores the keys of `some`, which are rows and all in one tile.
  template <class Reader>
  void ScoreKeyRows(Range some) const {
    for (int key = some.begin; key < some.stop; ++key) {
      float* to = tile + (key - some.begin) * padded_keys;
      ConvertRow<Reader>(KeyAt(base + key), task.head_dim,
                         [&](int i, int, F v) { V::Store(to + i, v); });
    }
    const int64_t keys = some.stop - some.begin;
    for (int64_t i = 0; i < keys * padded_rows; i += kLanes) {
      V::Store(scores_by_key + i, V::Zero());
    }
    // Tokens before the first key see none of these keys.
    const int64_t unseen = base + some.begin - task.first_position;
    const int64_t first_row = unseen > 0 ? unseen * task.group / 16 * 16 : 0;
    for (int64_t first = first_row; first < padded_rows; first += 16 * kMaxPanels) {
      const int64_t panels = (padded_rows - first) / 16;
      Multiply<V>::Run({.tile = queries + first * task.head_dim,
                        .panel_stride = 16 * static_cast<int64_t>(task.head_dim),
                        .x = tile,
                        .x_stride = padded_keys,
                        .k = task.head_dim,
                        .acc = scores_by_key + first,
                        .acc_stride = padded_rows},
                       keys, static_cast<int>(panels < kMaxPanels ? panels : kMaxPanels));
    }
    for (int64_t r = first_row; r < rows; ++r) {
      float* row = weights + r * kKeySplit + some.begin;
      for (int64_t key = 0; key < keys; ++key) row[key] = scores_by_key[key * padded_rows + r];
    }
  }

  template <class Reader, int kRows, bool kStream>
  void Scores(int64_t row, Range range) const {
    constexpr int kWidth = Multiply<V>::WidthFor(kRows);
    int panel = range.first_panel();
    for (; panel + kWidth <= range.end_panel(); panel += kWidth) {
      ScorePanels<Reader, kRows, kWidth, kStream>(row, panel);
    }
    for (; panel < range.end_panel(); ++panel) ScorePanels<Reader, kRows, 1, kStream>(row, panel);
  }

  // weights[row + r][16 · panel ...] = Σ_i queries[row + r][i] · key[...][i].
  template <class Reader, int kRows, int kWidth, bool kStream>
  void ScorePanels(int64_t row, int panel) const {
    constexpr int kN = kWidth * kVectors;
    F sum[kRows][kN];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) sum[r][n] = V::Zero();
    }
    const std::byte* keys[kWidth];
#pragma GCC unroll 8
    for (int p = 0; p < kWidth; ++p) keys[p] = key_panels[panel + p];
    const float* q = queries + row * task.head_dim;
    for (int left = task.head_dim; left > 0; left -= Reader::kBlock) {
      if constexpr (kStream) {
        for (int p = 0; p < kWidth; ++p) {
          const int64_t done = keys[p] - key_panels[panel + p];
          Prefetch(after_keys[panel + p] + done, Reader::kPanelBlockBytes);
        }
      }
      typename Reader::Scale scales[kN];
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) {
        scales[n] = Reader::KeyScale(keys[n / kVectors], n % kVectors * kLanes);
      }
      const int count = left < Reader::kBlock ? left : Reader::kBlock;
      for (int i = 0; i < count; ++i, ++q) {
        F k[kN];
#pragma GCC unroll 16
        for (int n = 0; n < kN; ++n) {
          k[n] = Reader::Key(keys[n / kVectors], i, n % kVectors * kLanes, scales[n]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const F factor = V::Broadcast(q[r * task.head_dim]);
#pragma GCC unroll 16
          for (int n = 0; n < kN; ++n) sum[r][n] = V::Fma(k[n], factor, sum[r][n]);
        }
      }
#pragma GCC unroll 8
      for (int p = 0; p < kWidth; ++p) keys[p] += Reader::kPanelBlockBytes;
    }
    float* scores = weights + row * kKeySplit + panel * kKeyPanel;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) V::Store(scores + r * kKeySplit + n * kLanes, sum[r][n]);
    }
  }

  template <class Reader, int kRows, bool kStream>
  void Values(int64_t row, Range range, int64_t row_bytes) const {
    constexpr int kWidth = Multiply<V>::WidthFor(kRows);
    int column = 0;
    for (; column + 16 * kWidth <= padded; column += 16 * kWidth) {
      AddValues<Reader, kRows, kWidth, kStream>(row, range, row_bytes, column);
    }
    for (; column < padded; column += 16) {
      AddValues<Reader, kRows, 1, kStream>(row, range, row_bytes, column);
    }
  }

  // out.values[row + r][column ...] += Σ_key weights[row + r][key] · value[key][column ...].
  template <class Reader, int kRows, int kWidth, bool kStream>
  void AddValues(int64_t row, Range range, int64_t row_bytes, int column) const {
    constexpr int kN = kWidth * kVectors;
    float* values = out.values + row * padded + column;
    F sum[kRows][kN];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) sum[r][n] = V::Load(values + r * padded + n * kLanes);
    }
    // A single panel may be the second half of 32 elements that share a scale.
    const int rest = kWidth % 2 == 0 ? 0 : column % Reader::kBlock;
    const int64_t offset = column / Reader::kBlock * Reader::kRowBlockBytes;
    const float* weight = weights + row * kKeySplit;
    for (int key = range.begin; key < range.stop;) {
      const int panel = key / kKeyPanel, end = (panel + 1) * kKeyPanel;
      const std::byte* v = value_rows[panel] + key % kKeyPanel * row_bytes + offset;
      for (; key < end && key < range.stop; ++key, v += row_bytes) {
        if constexpr (kStream) {
          Prefetch(v + (after_values[panel] - value_rows[panel]),
                   kWidth * 16 * Reader::kRowBlockBytes / Reader::kBlock);
        }
        F w[kN];
#pragma GCC unroll 16
        for (int n = 0; n < kN; ++n) w[n] = Reader::Value(v, rest + n * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const F factor = V::Broadcast(weight[r * kKeySplit + key]);
#pragma GCC unroll 16
          for (int n = 0; n < kN; ++n) sum[r][n] = V::Fma(w[n], factor, sum[r][n]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kN; ++n) V::Store(values + r * padded + n * kLanes, sum[r][n]);
    }
  }

  // Converts the keys of `range`, all in one tile, to f32 in `tile` and points key_panels there.
  // Other entries of their panels are undefined.
  template <class Reader>
  void ConvertKeys(Range range) {
    const bool in_panels = KeysInPanels(task.cache.block_size);
    for (int panel = range.first_panel(); panel < range.end_panel(); ++panel) {
      float* to = tile + panel % (kKeyTile / kKeyPanel) * kKeyPanel * task.head_dim;
      if (in_panels) {
        ConvertPanel<Reader>(key_panels[panel], to);
      } else {
        const Range lanes = range.Within(panel * kKeyPanel, (panel + 1) * kKeyPanel);
        for (int key = lanes.begin; key < lanes.stop; ++key) {
          ConvertRow<Reader>(KeyAt(base + key), task.head_dim, [&](int i, int n, F v) {
            alignas(64) float elements[16];
            V::Store(elements, v);
            for (int j = 0; j < n; ++j) to[(i + j) * kKeyPanel + key % kKeyPanel] = elements[j];
          });
        }
      }
      key_panels[panel] = reinterpret_cast<const std::byte*>(to);
    }
  }

  template <class Reader>
  void ConvertPanel(const std::byte* keys, float* to) const {
    for (int left = task.head_dim; left > 0; left -= Reader::kBlock) {
      const int count = left < Reader::kBlock ? left : Reader::kBlock;
      for (int lane = 0; lane < kKeyPanel; lane += kLanes) {
        const typename Reader::Scale scale = Reader::KeyScale(keys, lane);
        for (int i = 0; i < count; ++i) {
          V::Store(to + i * kKeyPanel + lane, Reader::Key(keys, i, lane, scale));
        }
      }
      keys += Reader::kPanelBlockBytes;
      to += Reader::kBlock * kKeyPanel;
    }
  }

  template <class Reader>
  void ConvertValues(Range range) {
    const bool aligned = KeysInPanels(task.cache.block_size);
    for (int panel = range.first_panel(); panel < range.end_panel(); ++panel) {
      float* const first = tile + panel % (kKeyTile / kKeyPanel) * kKeyPanel * padded;
      const Range some = range.Within(panel * kKeyPanel, (panel + 1) * kKeyPanel);
      for (int key = some.begin; key < some.stop; ++key) {
        float* to = first + key % kKeyPanel * padded;
        ConvertRow<Reader>(aligned ? value_rows[panel] + key % kKeyPanel * task.cache.value_stride
                                   : ValueAt(base + key),
                           task.value_dim, [&](int i, int, F v) { V::Store(to + i, v); });
        for (int64_t i = (task.value_dim + kLanes - 1) / kLanes * kLanes; i < padded; i += kLanes) {
          V::Store(to + i, V::Zero());
        }
      }
      value_rows[panel] = reinterpret_cast<const std::byte*>(first);
    }
  }

  // Calls store(i, n, vector) for each vector of the row: elements [i, i + n), then zeros.
  template <class Reader, typename Store>
  void ConvertRow(const std::byte* row, int size, Store store) const {
    int i = 0;
    for (; i + kLanes <= size; i += kLanes) store(i, kLanes, Reader::Value(row, i));
    if (i == size) return;
    if constexpr (Reader::kType != DType::kQ8_0) {
      alignas(64) std::byte buffer[64] = {};
      const int n = size - i;
      __builtin_memcpy(buffer, row + i * Reader::kBytes, static_cast<size_t>(n) * Reader::kBytes);
      store(i, n, Reader::Value(buffer, 0));
    }
  }

  // Turns row r's scores into weights relative to the highest, zero for keys that it does not see.
  // `range` has the keys that its register block scored.
  void Soften(int64_t r, Range range) const {
    float* row = weights + r * kKeySplit;
    const int begin = range.first_panel() * kKeyPanel, end = range.end_panel() * kKeyPanel;
    const Range seen = Seen(r, 1);
    if (task.softcap > 0) {
      // Scores are in powers of two, so the cap is too.
      const F cap = V::Broadcast(task.softcap * 1.44269504f);
      const F inverse = V::Broadcast(1.0f / (task.softcap * 1.44269504f));
      ForEachVector(begin, end, [&](int i, int) {
        V::Store(row + i, V::Mul(cap, Tanh<V>(V::Mul(V::Load(row + i), inverse))));
      });
    }
    if (task.slopes != nullptr) AddSlope(r, begin, end);
    for (int j = begin; j < seen.begin && j < end; ++j) row[j] = kNothing;
    for (int j = seen.stop > begin ? seen.stop : begin; j < end; ++j) row[j] = kNothing;
    Lanes<V> lanes;
    lanes.Fill(kNothing);
    ForEachVector(begin, end,
                  [&](int i, int v) { lanes.v[v] = V::Max(lanes.v[v], V::Load(row + i)); });
    const float highest = lanes.Max();
    out.highest[r] = highest;
    out.sum[r] = 0;
    if (highest == kNothing && AllUnseen(row, begin, end)) {
      for (int i = begin; i < end; i += kLanes) V::Store(row + i, V::Zero());
      return;
    }
    const F subtract = V::Broadcast(highest);
    lanes.Fill(0);
    ForEachVector(begin, end, [&](int i, int v) {
      const F weight = Exp2<V>(V::Sub(V::Load(row + i), subtract));
      V::Store(row + i, weight);
      lanes.v[v] = V::Add(lanes.v[v], weight);
    });
    out.sum[r] = lanes.Sum();
  }

  // Adds the slope of row r's head times (key position - query position), which is at most 0.
  void AddSlope(int64_t r, int begin, int end) const {
    alignas(64) static constexpr float kSteps[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
    float* row = weights + r * kKeySplit;
    const F slope = V::Broadcast(task.slopes[r % task.group] * 1.44269504f);
    const int64_t query = task.first_position + r / task.group;
    ForEachVector(begin, end, [&](int i, int) {
      const F first = V::Broadcast(static_cast<float>(base + i - query));
      const F distance = V::Add(first, V::Load(kSteps));
      V::Store(row + i, V::Add(V::Load(row + i), V::Mul(slope, distance)));
    });
  }

  // Writes one head of one token: weighted values divided by the sum of weights. Adding zero turns
  // -0 into +0; which of the two a row holds may depend on the cut.
  static void Finish(const float* values, float sum, int value_dim, float* out) {
    const F factor = V::Broadcast(1.0f / sum);
    int i = 0;
    for (; i + kLanes <= value_dim; i += kLanes) {
      V::Store(out + i, V::Add(V::Mul(V::Load(values + i), factor), V::Zero()));
    }
    if (i < value_dim) {
      StorePart<V>(out + i, value_dim - i, V::Add(V::Mul(V::Load(values + i), factor), V::Zero()));
    }
  }

  // Calls body(i, vector index among 16 lanes) over [begin, end), which are multiples of 16.
  template <typename Body>
  [[gnu::always_inline]] static inline void ForEachVector(int begin, int end, Body body) {
    for (int i = begin; i < end; i += 16) {
      for (int v = 0; v < kVectors; ++v) body(i + v * kLanes, v);
    }
  }

  // False if a score is NaN, which a maximum may miss.
  static bool AllUnseen(const float* row, int begin, int end) {
    for (int i = begin; i < end; ++i) {
      if (!(row[i] == kNothing)) return false;
    }
    return true;
  }

  static void Merge(int64_t rows, int64_t value_dim, const AttentionPartial& from,
                    const AttentionPartial& into) {
    const int64_t padded = PadTo16(value_dim);
    for (int64_t r = 0; r < rows; ++r) {
      if (from.highest[r] == kNothing && from.sum[r] == 0) continue;  // saw no key
      const float highest = from.highest[r] > into.highest[r] ? from.highest[r] : into.highest[r];
      const F old_factor = Exp2<V>(V::Broadcast(into.highest[r] - highest));
      const F new_factor = Exp2<V>(V::Broadcast(from.highest[r] - highest));
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
