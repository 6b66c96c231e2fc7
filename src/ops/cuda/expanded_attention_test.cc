// Attention to decompressed latents: entries are gathered bit by bit, and attention in chunks is
// softmax of scores times values, whatever the chunks, the CTAs, and the order of memory.
#include "ops/cuda/expanded_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "ops/cuda/testing/device_array.h"
#include "ops/cuda/testing/device_math.h"
#include "quant/e4m3.h"
#include "quant/half.h"

namespace tokamak::cuda {
namespace {

constexpr uint16_t kNan = 0xffff;
constexpr int kEntryDim = 96;  // of which the rotated elements are read

struct Sequence {
  int length, num_queries;
};

struct Problem {
  int heads;
  std::vector<Sequence> sequences;
  int chunk_keys;                               // of each sequence, in a chunk
  std::vector<uint16_t> entries, keys, values;  // of all positions, sequence after sequence
  std::vector<float> q;

  int num_tokens() const {
    int count = 0;
    for (const Sequence& s : sequences) count += s.num_queries;
    return count;
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(kExpandedKeyDim)); }
};

Problem MakeProblem(int heads, const std::vector<Sequence>& sequences, int chunk_keys) {
  Problem p = {.heads = heads,
               .sequences = sequences,
               .chunk_keys = chunk_keys,
               .entries = {},
               .keys = {},
               .values = {},
               .q = {}};
  std::mt19937 random(static_cast<unsigned>(heads + p.num_tokens()));
  std::normal_distribution<float> normal(0, 1.2f);
  const auto add = [&](std::vector<uint16_t>& to, int count) {
    for (int i = 0; i < count; ++i) to.push_back(FloatToBFloat16(normal(random)));
  };
  for (const Sequence& s : sequences) {
    for (int i = 0; i < s.length; ++i) {
      add(p.entries, kExpandedRotatedDim);
      p.entries.insert(p.entries.end(), kEntryDim - kExpandedRotatedDim, kNan);
    }
    add(p.keys, s.length * heads * kExpandedNopeDim);
    add(p.values, s.length * heads * kExpandedValueDim);
  }
  for (int i = 0; i < p.num_tokens() * heads * kExpandedKeyDim; ++i) p.q.push_back(normal(random));
  return p;
}

// A chunk: rows of its positions, with a row of NaN behind each sequence's, and its units.
struct Chunk {
  std::vector<uint16_t> entries, keys, values;
  std::vector<AttentionUnit> units;

  int num_rows() const { return static_cast<int>(entries.size()) / kEntryDim; }
};

Chunk MakeChunk(const Problem& p, int first_key, int tile_rows) {
  Chunk chunk;
  const auto copy = [&](const std::vector<uint16_t>& from, int width, int row, int count,
                        std::vector<uint16_t>& to) {
    const auto begin = from.begin() + int64_t{row} * width;
    to.insert(to.end(), begin, begin + int64_t{count} * width);
    to.insert(to.end(), static_cast<size_t>(width), kNan);
  };
  int first_row = 0, first_token = 0;  // of the sequence
  for (size_t s = 0; s < p.sequences.size(); ++s) {
    const auto [length, num_queries] = p.sequences[s];
    const int count = std::min(length - first_key, p.chunk_keys);
    if (count > 0) {
      for (int row = 0; row < num_queries; row += tile_rows) {
        AttentionUnit unit = {.first_token = first_token,
                              .first_position = length - num_queries,
                              .shared_last_key = 0,
                              .first_row = row,
                              .num_rows = std::min(tile_rows, num_queries - row),
                              .sequence = static_cast<int32_t>(s),
                              .begin_split = 0,
                              .end_split = 0,
                              .begin_part = first_key / kSplitKeys,
                              .end_part = 0,
                              .partial = chunk.num_rows()};
        const int last_key = unit.first_position + row + unit.num_rows - 1;
        unit.end_split = last_key / kSplitKeys + 1;
        unit.end_part = std::min(unit.end_split, (first_key + count + kSplitKeys - 1) / kSplitKeys);
        if (last_key >= first_key) chunk.units.push_back(unit);
      }
      const int row = first_row + first_key;
      copy(p.entries, kEntryDim, row, count, chunk.entries);
      copy(p.keys, p.heads * kExpandedNopeDim, row, count, chunk.keys);
      copy(p.values, p.heads * kExpandedValueDim, row, count, chunk.values);
    }
    first_row += length;
    first_token += num_queries;
  }
  return chunk;
}

struct Cut {
  int tile_rows = kWideRows, ctas = 2;
  bool bf16_queries = false;
  bool late = false;  // the kernels ahead store the queries and the first chunk's values
};

struct Outputs {
  std::vector<float> out, lse;
};

Outputs Attend(const Problem& p, const Cut& cut = {}) {
  const auto rows = static_cast<size_t>(int64_t{p.num_tokens()} * p.heads);
  DeviceArray<float> out(rows * kExpandedValueDim), lse(rows);
  DeviceArray<float> partials(rows * PartialFloats(kExpandedValueDim));
  std::vector<uint16_t> rounded;
  for (const float value : p.q) rounded.push_back(FloatToBFloat16(value));
  const DeviceArray<float> q(cut.late ? std::vector<float>(p.q.size(), NAN) : p.q);
  const DeviceArray<uint16_t> q_bf16(rounded);
  AttentionArgs args = {};
  args.q = cut.bf16_queries ? static_cast<const void*>(q_bf16.data()) : q.data();
  args.q_bf16 = cut.bf16_queries;
  args.out = out.data();
  args.lse = lse.data();
  args.partials = partials.data();
  args.q_stride = int64_t{p.heads} * kExpandedKeyDim;
  args.out_stride = int64_t{p.heads} * kExpandedValueDim;
  args.lse_stride = p.heads;
  args.scale = p.scale();
  args.group = 1;
  args.cache.num_kv_heads = p.heads;
  int longest = 0;
  for (const Sequence& s : p.sequences) longest = std::max(longest, s.length);
  for (int first = 0; first < longest; first += p.chunk_keys) {
    const Chunk chunk = MakeChunk(p, first, cut.tile_rows);
    std::vector<uint32_t> words;
    std::vector<int32_t> at(p.q.size());
    for (const float value : p.q) words.push_back(std::bit_cast<uint32_t>(value));
    std::iota(at.begin(), at.end(), 0);
    const DeviceArray<int32_t> places(at);
    const DeviceArray<uint32_t> queries(words);
    const DeviceArray<uint16_t> entries(chunk.entries), keys(chunk.keys), values(chunk.values);
    const DeviceArray<AttentionUnit> units(chunk.units);
    const CudaTestStream stream;
    if (cut.late && first == 0) {
      StoreLate(places, queries, reinterpret_cast<uint32_t*>(q.data()), stream);
    }
    EXPECT_EQ(LaunchExpandedAttention(args,
                                      {.entries = entries.data(),
                                       .keys = keys.data(),
                                       .values = values.data(),
                                       .num_rows = chunk.num_rows(),
                                       .entry_dim = kEntryDim,
                                       .units = units.data(),
                                       .num_units = static_cast<int>(chunk.units.size())},
                                      cut.ctas, stream.get()),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  }
  const CudaTestStream stream;
  return {out.Download(stream), lse.Download(stream)};
}

// Compares with exact attention. A weight is rounded to bf16; the sum of weights is not.
void CheckExact(const Problem& p, const Outputs& actual) {
  const auto element = [](const std::vector<uint16_t>& from, int64_t at) {
    return double{BFloat16ToFloat(from[static_cast<size_t>(at)])};
  };
  int first_row = 0, token = 0;
  double worst = 0;
  for (const auto& [length, num_queries] : p.sequences) {
    for (int query = 0; query < num_queries; ++query, ++token) {
      for (int head = 0; head < p.heads; ++head) {
        const int64_t row = int64_t{token} * p.heads + head;
        double total = 0;
        std::vector<double> sums(kExpandedValueDim), sizes(kExpandedValueDim);
        for (int key = 0; key <= length - num_queries + query; ++key) {
          const int64_t at = first_row + key, of_head = at * p.heads + head;
          double score = 0;
          for (int d = 0; d < kExpandedKeyDim; ++d) {
            const float from = p.q[static_cast<size_t>(row * kExpandedKeyDim + d)];
            score += double{BFloat16ToFloat(FloatToBFloat16(from))} *
                     (d < kExpandedRotatedDim
                          ? element(p.entries, at * kEntryDim + d)
                          : element(p.keys, of_head * kExpandedNopeDim + d - kExpandedRotatedDim));
          }
          const double weight = std::exp(score * p.scale());
          total += weight;
          for (int d = 0; d < kExpandedValueDim; ++d) {
            const double value = element(p.values, of_head * kExpandedValueDim + d);
            sums[static_cast<size_t>(d)] += weight * value;
            sizes[static_cast<size_t>(d)] += weight * std::abs(value);
          }
        }
        ASSERT_NEAR(actual.lse[static_cast<size_t>(row)], std::log(total), 1e-4) << row;
        for (int d = 0; d < kExpandedValueDim; ++d) {
          const auto i = static_cast<size_t>(d);
          const double error =
              std::abs(actual.out[static_cast<size_t>(row * kExpandedValueDim + d)] -
                       sums[i] / total) /
              (sizes[i] / total);
          ASSERT_LT(error, 0x1.4p-9) << "row " << row << ", element " << d;
          worst = std::max(worst, error);
        }
      }
    }
    first_row += length;
  }
  std::printf("off by %g of the weighted size of values\n", worst);
}

bool SameBits(const Outputs& a, const Outputs& b) {
  const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    return std::ranges::equal(
        x, y, {}, [](float v) { return std::bit_cast<uint32_t>(v); },
        [](float v) { return std::bit_cast<uint32_t>(v); });
  };
  return same(a.out, b.out) && same(a.lse, b.lse);
}

TEST(ExpandedAttention, IsSoftmaxOfScoresTimesValues) {
  const Problem p = MakeProblem(2, {{150, 133}, {65, 1}, {1, 1}, {64, 20}}, 256);
  const Outputs actual = Attend(p);
  CheckExact(p, actual);
  EXPECT_TRUE(SameBits(Attend(p, {.ctas = 1}), actual));
  EXPECT_TRUE(SameBits(Attend(p, {.tile_rows = 37, .ctas = 3, .bf16_queries = true}), actual));
}

// Rows that see no key of a later chunk keep what the earlier ones gave.
TEST(ExpandedAttention, ChunksAreMerged) {
  const std::vector<Sequence> sequences = {{530, 21}, {70, 33}, {275, 130}};
  const Problem p = MakeProblem(1, sequences, 256);
  const Outputs actual = Attend(p);
  CheckExact(p, actual);
  EXPECT_TRUE(SameBits(Attend(p, {.tile_rows = 50, .ctas = 1}), actual));
  CheckExact(MakeProblem(3, {{530, 21}}, 512), Attend(MakeProblem(3, {{530, 21}}, 512)));
}

TEST(ExpandedAttention, WhatTheKernelAheadStoresIsReadAfterIt) {
  const Problem p = MakeProblem(1, {{20, 3}, {100, 40}}, 256);
  const Outputs expected = Attend(p);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(Attend(p, {.ctas = 1 + i, .late = true}), expected)) << i;
  }
}

// A position's value is not finite: only rows that see it become NaN.
TEST(ExpandedAttention, ValuesThatARowDoesNotSeeDoNotReachIt) {
  const Problem healthy = MakeProblem(1, {{100, 90}}, 256);
  Problem sick = healthy;
  sick.values[size_t{70 * kExpandedValueDim + 5}] = 0x7fc0;
  const Outputs actual = Attend(sick), expected = Attend(healthy);
  for (int token = 0; token < 90; ++token) {
    const auto at = static_cast<size_t>(int64_t{token} * kExpandedValueDim + 5);
    if (token < 60) {
      EXPECT_EQ(actual.out[at], expected.out[at]) << token;
    } else {
      EXPECT_TRUE(std::isnan(actual.out[at])) << token;
    }
    EXPECT_EQ(actual.out[at + 1], expected.out[at + 1]) << token;
  }
}

// Three segments of two sequences, whose blocks are scattered.
void CheckGather(DType dtype, int block_size, int dim) {
  const bool fp8 = dtype == DType::kF8E4M3;
  const int64_t element = fp8 ? 1 : 2, block_bytes = 32 + block_size * dim * element + 16;
  const int num_blocks = 40, stride = 20;
  std::vector<std::byte> cache(static_cast<size_t>(num_blocks * block_bytes));
  std::mt19937 random(7);
  for (std::byte& byte : cache) byte = static_cast<std::byte>(random() % 120);  // finite
  std::vector<int32_t> tables(num_blocks);
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), random);
  const std::vector<int32_t> table_rows = {1, 0};
  const std::vector<ExpandedSegment> segments = {
      {.sequence = 1, .first_key = 0, .num_keys = 3, .first_row = 0},
      {.sequence = 0, .first_key = 256, .num_keys = 29, .first_row = 3},
      {.sequence = 1, .first_key = 256, .num_keys = 1, .first_row = 32}};
  const DeviceArray<std::byte> device_cache(cache);
  const DeviceArray<int32_t> device_tables(tables), rows(table_rows);
  const DeviceArray<ExpandedSegment> device_segments(segments);
  DeviceArray<uint16_t> out(static_cast<size_t>(33 * dim));
  const CudaTestStream stream;
  ASSERT_EQ(LaunchGatherEntries({.cache = {.base = device_cache.data(),
                                           .block_stride = block_bytes,
                                           .k_offset = 32,
                                           .v_offset = 0,
                                           .dtype = dtype,
                                           .block_size = block_size,
                                           .num_kv_heads = 1,
                                           .head_dim = dim},
                                 .table_rows = rows.data(),
                                 .block_tables = device_tables.data(),
                                 .table_stride = stride,
                                 .segments = device_segments.data(),
                                 .num_segments = 3,
                                 .num_rows = 33,
                                 .out = out.data()},
                                stream.get()),
            cudaSuccess);
  const std::vector<uint16_t> actual = out.Download(stream);
  for (const ExpandedSegment& segment : segments) {
    for (int i = 0; i < segment.num_keys; ++i) {
      const int key = segment.first_key + i;
      const int32_t block = tables[static_cast<size_t>(
          int64_t{table_rows[static_cast<size_t>(segment.sequence)]} * stride + key / block_size)];
      for (int d = 0; d < dim; ++d) {
        const auto at =
            static_cast<size_t>(block * block_bytes + 32 + (key % block_size * dim + d) * element);
        const auto low = std::to_integer<uint16_t>(cache[at]);
        const auto expected =
            fp8 ? FloatToBFloat16(E4m3ToFloat(static_cast<uint8_t>(low)))
                : static_cast<uint16_t>(low | std::to_integer<uint16_t>(cache[at + 1]) << 8);
        ASSERT_EQ(actual[static_cast<size_t>((segment.first_row + i) * dim + d)], expected)
            << "row " << segment.first_row + i << ", element " << d;
      }
    }
  }
}

TEST(GatherEntries, CopiesTheEntriesOfPositions) {
  CheckGather(DType::kBF16, 16, 576);
  CheckGather(DType::kF8E4M3, 16, 576);
  CheckGather(DType::kBF16, 64, 80);
}

}  // namespace
}  // namespace tokamak::cuda
