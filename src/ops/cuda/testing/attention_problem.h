// The results that attention on tensor cores must give, bit by bit: problems with a cache of
// scattered blocks, how a kernel computes them, and the recipe of mma_attention.h for each row
// alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "ops/cuda/latent_attention.h"
#include "ops/cuda/mma_attention.h"
#include "ops/cuda/testing/device_array.h"
#include "ops/cuda/testing/device_math.h"
#include "quant/e4m3.h"
#include "quant/half.h"

namespace tokamak::cuda::attention_test {

using emulation::ElementType;

inline constexpr int kKeyTile = 64;
inline constexpr uint16_t kNan = 0xffff;
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Geometry {
  int num_heads, num_kv_heads, head_dim, block_size, window;
  bool causal = true;
  int latent_dim = 0;  // if values are the last elements of the keys
  float softcap = 0;
  bool has_sinks = false;
  int group() const { return num_heads / num_kv_heads; }
  int value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
  int wide_rows() const { return latent_dim > 0 ? kWideLatentRows : kWideRows; }
};
struct Sequence {
  int length, num_queries;
};

// Sequences in a cache of scattered blocks, among bytes that are NaN.
struct Problem {
  Geometry g;
  std::vector<Sequence> sequences;
  std::vector<int32_t> first_token = {0};
  int64_t table_stride = 0;
  std::vector<int32_t> tables;
  int64_t k_offset = 0, v_offset = 0, block_stride = 0;  // bytes
  std::vector<uint16_t> cache;
  std::vector<float> q;      // [tokens, heads, head_dim]
  std::vector<float> sinks;  // [heads], or none
  float scale = 0;

  // The elements of a position's key, or value.
  uint16_t* At(size_t s, int position, int kv_head, bool value) {
    const int32_t block = tables[s * static_cast<size_t>(table_stride) +
                                 static_cast<size_t>(position / g.block_size)];
    const int64_t row = int64_t{kv_head} * g.block_size + position % g.block_size;
    // With latents, v_offset is where the value of the first key begins.
    return cache.data() + (block * block_stride + (value ? v_offset : k_offset)) / 2 +
           row * g.head_dim;
  }
};

inline Problem MakeProblem(const Geometry& g, const std::vector<Sequence>& sequences) {
  Problem p;
  p.g = g;
  p.sequences = sequences;
  p.scale = 1 / std::sqrt(static_cast<float>(g.head_dim));
  int64_t num_blocks = 2;
  for (const Sequence& s : sequences) {
    const int64_t blocks = (s.length + g.block_size - 1) / g.block_size;
    p.table_stride = std::max(p.table_stride, blocks + 1);
    num_blocks += blocks;
    p.first_token.push_back(p.first_token.back() + s.num_queries);
  }
  const int64_t bytes = int64_t{g.num_kv_heads} * g.block_size * g.head_dim * 2;
  p.k_offset = 64;
  p.v_offset = p.k_offset + (g.latent_dim > 0 ? (g.head_dim - g.latent_dim) * 2 : bytes + 32);
  p.block_stride = p.k_offset + 2 * bytes + 128;
  p.cache.assign(static_cast<size_t>(num_blocks * p.block_stride / 2), kNan);
  p.tables.assign(sequences.size() * static_cast<size_t>(p.table_stride), -1);
  std::mt19937 random(static_cast<unsigned>(g.head_dim + p.first_token.back()));
  std::vector<int32_t> free(static_cast<size_t>(num_blocks));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  std::normal_distribution<float> normal(0, 1.5f);
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int first_query = sequences[s].length - sequences[s].num_queries;
    const int first_key = g.window > 0 ? std::max(0, first_query + 1 - g.window) : 0;
    for (int position = first_key; position < sequences[s].length; ++position) {
      int32_t& block = p.tables[s * static_cast<size_t>(p.table_stride) +
                                static_cast<size_t>(position / g.block_size)];
      if (block < 0) {
        block = free.back();
        free.pop_back();
      }
      for (int h = 0; h < g.num_kv_heads; ++h) {
        for (const bool value : {false, true}) {
          if (value && g.latent_dim > 0) continue;
          uint16_t* row = p.At(s, position, h, value);
          for (int d = 0; d < g.head_dim; ++d) row[d] = FloatToBFloat16(normal(random));
        }
      }
    }
  }
  for (int i = 0; i < p.first_token.back() * g.num_heads * g.head_dim; ++i) {
    p.q.push_back(normal(random));
  }
  for (int h = 0; g.has_sinks && h < g.num_heads; ++h) p.sinks.push_back(3 * normal(random));
  return p;
}

// The same problem with the nearest values that E4M3 has.
inline Problem InFp8(Problem p) {
  for (uint16_t& element : p.cache) {
    if (element != kNan) {
      element = FloatToBFloat16(E4m3ToFloat(FloatToE4m3(BFloat16ToFloat(element))));
    }
  }
  return p;
}

// How units are cut, and how their inputs are stored, which changes no bit.
struct Cut {
  int tile_rows = kTileRows;
  int spread = 0;  // splits in each part of a tile; 0: it is not divided
  int ctas = 2;
  bool wide = false;  // by the kernel for wide tiles
  KernelForm form = KernelForm::kHopper;
  bool late = false;  // the kernels ahead store the queries, keys and values of the step
  bool keys_last = false;
  bool bf16_queries = false;  // instead of f32, which kernels round
  bool fp8 = false;           // the cache; its values must be among those of E4M3
};
inline constexpr Cut kWide = {.tile_rows = kWideRows, .wide = true};
inline constexpr Cut kWideLatent = {.tile_rows = kWideLatentRows, .wide = true};

// Returns the cuts in each form that the device runs; Ampere's has no wide tiles.
inline std::vector<Cut> InFormsHere(const std::vector<Cut>& cuts) {
  std::vector<Cut> all;
  for (const KernelForm form : FormsHere()) {
    for (Cut cut : cuts) {
      cut.form = form;
      if (!cut.wide || form == KernelForm::kHopper) all.push_back(cut);
    }
  }
  return all;
}

struct Outputs {
  std::vector<uint32_t> out, lse;  // bits
};

// Expects that the outputs of queries from `query` on are NaN, and those before as expected.
// `cols`: elements of a query's output.
inline void ExpectNanFrom(size_t query, const Outputs& actual, const Outputs& expected,
                          size_t cols) {
  for (size_t i = 0; i < actual.out.size(); ++i) {
    if (i / cols < query) {
      EXPECT_EQ(actual.out[i], expected.out[i]) << i;
    } else {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(actual.out[i]))) << i;
    }
  }
}

inline std::vector<AttentionUnit> CutUnits(const Problem& p, const Cut& cut, int* num_partials) {
  std::vector<AttentionUnit> units;
  for (size_t s = 0; s < p.sequences.size(); ++s) {
    const Sequence& sequence = p.sequences[s];
    const int rows = sequence.num_queries * p.g.group();
    for (int row = 0; row < rows; row += cut.tile_rows) {
      AttentionUnit unit = {.first_token = p.first_token[s],
                            .first_position = sequence.length - sequence.num_queries,
                            .shared_last_key = p.g.causal ? 0 : sequence.length - 1,
                            .first_row = row,
                            .num_rows = std::min(cut.tile_rows, rows - row),
                            .sequence = static_cast<int32_t>(s),
                            .begin_split = 0,
                            .end_split = 0,
                            .begin_part = 0,
                            .end_part = 0,
                            .partial = 0};
      const int first = unit.first_position + row / p.g.group();
      const int last = unit.first_position + (row + unit.num_rows - 1) / p.g.group();
      unit.begin_split = (p.g.window > 0 ? std::max(0, first + 1 - p.g.window) : 0) / kSplitKeys;
      unit.end_split = std::max(last, unit.shared_last_key) / kSplitKeys + 1;
      unit.begin_part = unit.begin_split;
      unit.end_part = unit.end_split;
      if (cut.spread == 0) {
        units.push_back(unit);
        continue;
      }
      unit.partial = *num_partials;
      *num_partials +=
          (unit.end_split - unit.begin_split) * (cut.wide ? p.g.wide_rows() / kTileRows : 1);
      while (unit.begin_part < unit.end_split) {
        unit.end_part = std::min(unit.begin_part + cut.spread, unit.end_split);
        units.push_back(unit);
        unit.begin_part = unit.end_part;
      }
    }
  }
  return units;
}

inline std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// Words that a kernel will store.
struct LateWords {
  std::vector<int32_t> at;
  std::vector<uint32_t> words;

  // Adds the words of a row of the array at `base`, and makes it NaN.
  void Take(void* base, void* row, size_t bytes) {
    const auto first = (static_cast<std::byte*>(row) - static_cast<std::byte*>(base)) / 4;
    for (size_t i = 0; i < bytes / 4; ++i) {
      auto* const word = static_cast<std::byte*>(row) + 4 * i;
      at.push_back(static_cast<int32_t>(first) + static_cast<int32_t>(i));
      std::memcpy(&words.emplace_back(), word, 4);
      std::memset(word, 0xff, 4);
    }
  }
};
inline LateWords TakeNewKeysAndValues(Problem& p) {
  LateWords late;
  for (size_t s = 0; s < p.sequences.size(); ++s) {
    const Sequence& sequence = p.sequences[s];
    for (int at = sequence.length - sequence.num_queries; at < sequence.length; ++at) {
      for (int h = 0; h < p.g.num_kv_heads; ++h) {
        for (const bool value : {false, true}) {
          if (value && p.g.latent_dim > 0) continue;
          late.Take(p.cache.data(), p.At(s, at, h, value), static_cast<size_t>(p.g.head_dim) * 2);
        }
      }
    }
  }
  return late;
}

// The E4M3 codes of a cache's elements, four in a word of two.
inline std::vector<uint32_t> Fp8Words(const std::vector<uint32_t>& words) {
  std::vector<uint32_t> codes(words.size() / 2);
  for (size_t i = 0; i < 4 * codes.size(); ++i) {
    const auto element = static_cast<uint16_t>(words[i / 2] >> i % 2 * 16);
    codes[i / 4] |= uint32_t{FloatToE4m3(BFloat16ToFloat(element))} << i % 4 * 8;
  }
  return codes;
}
// Stores the cache, and what is stored in it late, as E4M3.
inline void StoreInFp8(Problem& p, LateWords& late) {
  std::vector<uint32_t> words(p.cache.size() / 2);
  std::memcpy(words.data(), p.cache.data(), 4 * words.size());
  words = Fp8Words(words);
  p.cache.resize(2 * words.size());
  std::memcpy(p.cache.data(), words.data(), 4 * words.size());
  late.words = Fp8Words(late.words);
  for (size_t i = 0; i < late.words.size(); ++i) late.at[i] = late.at[2 * i] / 2;
  late.at.resize(late.words.size());
  for (int64_t* bytes : {&p.k_offset, &p.v_offset, &p.block_stride}) *bytes /= 2;
}

inline Outputs Attend(Problem p, const Cut& cut = {}) {
  const Geometry& g = p.g;
  int num_partials = 0;
  const std::vector<AttentionUnit> units = CutUnits(p, cut, &num_partials);
  std::vector<std::byte> plan(sizeof(AttentionHeader) + units.size() * sizeof(AttentionUnit));
  const auto num_units = static_cast<int32_t>(units.size());
  const AttentionHeader header = {.num_units = cut.wide ? 0 : num_units,
                                  .num_wide_units = cut.wide ? num_units : 0,
                                  .num_expanded_units = 0,
                                  .unused = 0};
  std::copy_n(reinterpret_cast<const std::byte*>(&header), sizeof(header), plan.begin());
  std::copy_n(reinterpret_cast<const std::byte*>(units.data()),
              units.size() * sizeof(AttentionUnit), plan.begin() + sizeof(header));
  std::vector<int32_t> table_rows(p.sequences.size());
  std::iota(table_rows.begin(), table_rows.end(), 0);

  LateWords late_q, late_cache;
  if (cut.late) {
    late_q.Take(p.q.data(), p.q.data(), p.q.size() * sizeof(float));
    late_cache = TakeNewKeysAndValues(p);
  }
  if (cut.fp8) StoreInFp8(p, late_cache);
  const DeviceArray<int32_t> late_q_at(late_q.at), late_cache_at(late_cache.at);
  const DeviceArray<uint32_t> late_q_words(late_q.words), late_cache_words(late_cache.words);
  const DeviceArray<std::byte> device_plan(plan);
  const DeviceArray<int32_t> rows(table_rows), tables(p.tables);
  const DeviceArray<uint16_t> cache(p.cache);
  const DeviceArray<float> q(p.q);
  std::vector<uint16_t> rounded;
  for (const float value : p.q) rounded.push_back(FloatToBFloat16(value));
  const DeviceArray<uint16_t> rounded_q(rounded);
  const DeviceArray<float> sinks(p.sinks);
  const auto places = static_cast<size_t>(std::max(1, num_partials) * g.num_kv_heads);
  DeviceArray<float> partials(places * kTileRows *
                              static_cast<size_t>(PartialFloats(g.value_dim())));
  DeviceArray<int32_t> counters(std::vector<int32_t>(places, 0));
  DeviceArray<std::byte> totals(static_cast<size_t>(cut.ctas * kWideLatentBytes));
  const auto num_rows =
      static_cast<size_t>(p.first_token.back()) * static_cast<size_t>(g.num_heads);
  DeviceArray<float> out(num_rows * static_cast<size_t>(g.value_dim())), lse(num_rows);
  AttentionArgs args = {};
  args.q_bf16 = cut.bf16_queries;
  args.q = cut.bf16_queries ? static_cast<const void*>(rounded_q.data()) : q.data();
  args.out = out.data();
  args.lse = lse.data();
  args.q_stride = int64_t{g.num_heads} * g.head_dim;
  args.out_stride = int64_t{g.num_heads} * g.value_dim();
  args.lse_stride = g.num_heads;
  args.scale = p.scale;
  args.group = g.group();
  args.window = g.window;
  args.softcap = g.softcap;
  args.sinks = g.has_sinks ? sinks.data() : nullptr;
  args.cache = {.base = reinterpret_cast<std::byte*>(cache.data()),
                .block_stride = p.block_stride,
                .k_offset = p.k_offset,
                .v_offset = p.v_offset,
                .dtype = cut.fp8 ? DType::kF8E4M3 : DType::kBF16,
                .block_size = g.block_size,
                .num_kv_heads = g.num_kv_heads,
                .head_dim = g.head_dim,
                .value_dim = g.latent_dim,
                .values_in_keys = g.latent_dim > 0};
  args.plan = reinterpret_cast<const AttentionHeader*>(device_plan.data());
  args.table_rows = rows.data();
  args.block_tables = tables.data();
  args.table_stride = p.table_stride;
  args.partials = partials.data();
  args.counters = counters.data();
  args.totals = totals.data();
  const CudaTestStream stream;
  if (cut.late) {
    const auto store_queries = [&] {
      StoreLate(late_q_at, late_q_words, reinterpret_cast<uint32_t*>(q.data()), stream);
    };
    if (cut.keys_last) store_queries();
    StoreLate(late_cache_at, late_cache_words, reinterpret_cast<uint32_t*>(cache.data()), stream);
    if (!cut.keys_last) store_queries();
  }
  const bool is_hopper = cut.form == KernelForm::kHopper && FormsHere().size() > 1;
  const bool is_latent = g.latent_dim > 0;
  const auto launch = cut.wide ? (is_latent ? LaunchWideLatentAttention : LaunchWideAttention)
                      : is_hopper
                          ? (is_latent ? LaunchLatentAttention : LaunchMmaAttention)
                          : (is_latent ? LaunchAmpereLatentAttention : LaunchAmpereAttention);
  EXPECT_EQ(launch(args, cut.ctas, stream.get()), cudaSuccess);
  return {Bits(out.Download(stream)), Bits(lse.Download(stream))};
}

// The recipe, for one row.
class PlainRow {
 public:
  PlainRow(Problem& p, size_t s, int query, int head)
      : p_(p),
        s_(s),
        kv_head_(head / p.g.group()),
        head_(head),
        scale_((p.g.softcap > 0 ? p.g.softcap : p.scale) * kLog2E),
        last_(p.g.causal ? p.sequences[s].length - p.sequences[s].num_queries + query
                         : p.sequences[s].length - 1),
        first_(p.g.window > 0 ? std::max(0, last_ + 1 - p.g.window) : 0) {
    const size_t row =
        static_cast<size_t>(int64_t{p.first_token[s] + query} * p.g.num_heads + head);
    for (int d = 0; d < p.g.head_dim; ++d) {
      q_.push_back(
          FloatToBFloat16(p.q[row * static_cast<size_t>(p.g.head_dim) + static_cast<size_t>(d)]));
    }
  }

  // Appends the row's outputs.
  void Run(std::vector<float>& out, std::vector<float>& lse) {
    State total;
    for (int split = first_ / kSplitKeys; split <= last_ / kSplitKeys; ++split) {
      State state = RunSplit(split);
      if (split == first_ / kSplitKeys) {
        total = state;
        continue;
      }
      const float both = std::max(total.highest, state.highest);
      const std::vector<float> factors = DeviceExp2({total.highest - both, state.highest - both});
      const float factor = factors[0], weight = factors[1];
      total.highest = both;
      total.sum = std::fma(state.sum, weight, total.sum * factor);
      for (size_t d = 0; d < total.values.size(); ++d) {
        total.values[d] = std::fma(state.values[d], weight, total.values[d] * factor);
      }
    }
    if (p_.g.has_sinks) TakeSink(total);
    for (const float value : total.values) out.push_back(value / total.sum + 0.0f);
    lse.push_back((total.highest + DeviceLog2({total.sum})[0]) * 0.6931471805599453f);
  }

 private:
  struct State {
    float highest = -kInfinity;
    float sum = 0;
    std::vector<float> values;
  };

  void TakeSink(State& total) const {
    const float sink = p_.sinks[static_cast<size_t>(head_)] * kLog2E;
    const float both = std::max(total.highest, sink);
    const std::vector<float> factors = DeviceExp2({total.highest - both, sink - both});
    total.highest = both;
    total.sum = factors[1] + total.sum * factors[0];
    for (float& value : total.values) value *= factors[0];
  }

  // Rows of a tile, zero where the row does not see them.
  std::vector<uint16_t> Tile(int first, bool values) const {
    const int dim = values ? p_.g.value_dim() : p_.g.head_dim;
    std::vector<uint16_t> tile(static_cast<size_t>(kKeyTile * dim));
    for (int key = std::max(first, first_); key <= std::min(first + kKeyTile - 1, last_); ++key) {
      std::copy_n(p_.At(s_, key, kv_head_, values), dim, tile.begin() + (key - first) * dim);
    }
    return tile;
  }

  std::array<float, kKeyTile> Scores(int first) const {
    std::array<float, kKeyTile> scores = {};
    const std::vector<uint16_t> keys = Tile(first, false);
    for (int d = 0; d < p_.g.head_dim; d += 16) {
      emulation::MultiplyAccumulate(
          emulation::Instruction::kMma, TensorCoreSums(), {1, kKeyTile, 16},
          {.elements = &q_[static_cast<size_t>(d)], .type = ElementType::kBf16, .row_stride = 16},
          {.elements = &keys[static_cast<size_t>(d)],
           .type = ElementType::kBf16,
           .row_stride = 1,
           .column_stride = p_.g.head_dim},
          scores.data());
    }
    if (p_.g.softcap > 0) Cap(scores);
    for (int i = 0; i < kKeyTile; ++i) {
      if (first + i < first_ || first + i > last_) scores[static_cast<size_t>(i)] = -kInfinity;
    }
    return scores;
  }

  // tanh(x) = 1 - 2 / (1 + e^(2x)).
  void Cap(std::array<float, kKeyTile>& scores) const {
    const float exponent = 2 * kLog2E * p_.scale * DeviceReciprocal({p_.g.softcap})[0];
    std::vector<float> powers;
    for (const float score : scores) powers.push_back(exponent * score);
    powers = DeviceExp2(powers);
    for (float& power : powers) power += 1;
    const std::vector<float> reciprocals = DeviceReciprocal(powers);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = std::fma(-2.0f, reciprocals[i], 1.0f);
  }

  State RunSplit(int split) const {
    State state;
    const int dim = p_.g.value_dim();
    state.values.assign(static_cast<size_t>(dim), 0);
    std::array<std::array<float, 4>, 4> sums = {};
    const int end = std::min((split + 1) * kSplitKeys, last_ + 1);
    for (int first = std::max(split * kSplitKeys, first_ / kKeyTile * kKeyTile); first < end;
         first += kKeyTile) {
      const std::array<float, kKeyTile> scores = Scores(first);
      const float highest =
          std::max(state.highest, *std::max_element(scores.begin(), scores.end()) * scale_);
      std::vector<float> weights;
      for (const float score : scores) weights.push_back(std::fma(score, scale_, -highest));
      weights.push_back(state.highest - highest);
      weights = DeviceExp2(weights);
      const float factor = weights.back();
      state.highest = highest;
      std::array<uint16_t, kKeyTile> rounded;
      for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = FloatToBFloat16(weights[i]);
      for (size_t g = 0; g < 4; ++g) {
        for (size_t t = 0; t < 4; ++t) {
          const float* at = &weights[16 * g + 2 * t];
          sums[g][t] = std::fma(sums[g][t], factor, (at[0] + at[1]) + (at[8] + at[9]));
        }
      }
      for (float& value : state.values) value *= factor;
      const std::vector<uint16_t> values = Tile(first, true);
      for (int k = 0; k < kKeyTile; k += 16) {
        emulation::MultiplyAccumulate(emulation::Instruction::kMma, TensorCoreSums(), {1, dim, 16},
                                      {.elements = &rounded[static_cast<size_t>(k)],
                                       .type = ElementType::kBf16,
                                       .row_stride = 16},
                                      {.elements = &values[static_cast<size_t>(int64_t{k} * dim)],
                                       .type = ElementType::kBf16,
                                       .row_stride = dim},
                                      state.values.data());
      }
    }
    const auto group = [&](size_t g) {
      return (sums[g][0] + sums[g][1]) + (sums[g][2] + sums[g][3]);
    };
    state.sum = ((group(0) + group(1)) + group(2)) + group(3);
    return state;
  }

  Problem& p_;
  const size_t s_;
  const int kv_head_, head_;
  const float scale_;       // to units of log2
  const int last_, first_;  // keys that it sees
  std::vector<uint16_t> q_;
};

inline Outputs Expect(Problem p) {
  std::vector<float> out, lse;
  for (size_t s = 0; s < p.sequences.size(); ++s) {
    for (int query = 0; query < p.sequences[s].num_queries; ++query) {
      for (int head = 0; head < p.g.num_heads; ++head) PlainRow(p, s, query, head).Run(out, lse);
    }
  }
  return {Bits(out), Bits(lse)};
}

}  // namespace tokamak::cuda::attention_test
