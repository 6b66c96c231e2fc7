// Attention over the paged cache: mixed batches on every backend, against the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/testing/sanitizers.h"
#include "ops/graph_batch.h"
#include "ops/reference/reference_ops.h"
#include "ops/testing/attention_case.h"
#include "ops/testing/op_harness.h"

namespace tokamak::attention_test {
namespace {

class AttentionOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, AttentionOps, ::testing::ValuesIn(OpBackends()), OpBackendName);
INSTANTIATE_TEST_SUITE_P(Plain, AttentionOps, ::testing::ValuesIn(PlainCudaBackend()),
                         OpBackendName);

// Queries [begin, end) of sequence `s` alone. None of its bidirectional ranges may end behind them.
AttentionCase OnlyQueries(const AttentionCase& c, int64_t s, int64_t begin, int64_t end) {
  AttentionCase only = c;
  const auto seq = static_cast<size_t>(s);
  const int64_t length = c.query_start_loc[seq + 1] - c.query_start_loc[seq];
  const int64_t width = static_cast<int64_t>(c.geometry.num_heads) * c.geometry.head_dim;
  only.seq_lens = {static_cast<int32_t>(c.seq_lens[seq] - length + end)};
  only.query_start_loc = {0, static_cast<int32_t>(end - begin)};
  only.bidirectional.clear();
  const int64_t from = c.query_start_loc[seq] + begin, to = c.query_start_loc[seq] + end;
  for (const BatchRows& range : c.bidirectional) {
    if (range.end <= from || range.begin >= to) continue;
    only.bidirectional.push_back({std::max<int64_t>(0, range.begin - from), range.end - from});
  }
  only.block_tables.assign(c.block_tables.begin() + s * c.table_stride,
                           c.block_tables.begin() + (s + 1) * c.table_stride);
  const auto q = c.q.begin() + c.query_start_loc[seq] * width;
  only.q.assign(q + begin * width, q + end * width);
  const auto first = static_cast<int64_t>(c.first_slot[seq]);
  const auto last = static_cast<int64_t>(c.first_slot[seq + 1]);
  only.slot_mapping.assign(c.slot_mapping.begin() + first, c.slot_mapping.begin() + last);
  const int64_t entry = int64_t{2} * c.geometry.num_kv_heads * c.geometry.head_dim;
  only.keys_values.assign(c.keys_values.begin() + first * entry,
                          c.keys_values.begin() + last * entry);
  return only;
}

TEST_P(AttentionOps, MixedBatchesMatchTheReference) {
  std::mt19937_64 random(1);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  for (const DType dtype : CacheTypes(GetParam())) {
    WorstError worst(fmt::format("{} attention {}", ops->name(), Name(dtype)));
    for (const int window : {0, 1, 70, 300}) {
      const Geometry g = {.window = window, .dtype = dtype};
      CheckAttention(*ops, *reference, RandomCase(random, g, MixedBatch()), worst,
                     fmt::format("window {}", window));
    }
  }
}

TEST_P(AttentionOps, OddShapesMatchTheReference) {
  std::mt19937_64 random(2);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} attention, odd shapes", ops->name()));
  struct Odd {
    int heads, kv_heads, head_dim, block_size;
  };
  for (const Odd& odd : std::vector<Odd>{{1, 1, 8, 1},
                                         {9, 3, 64, 16},
                                         {7, 1, 20, 5},
                                         {5, 5, 33, 7},
                                         {60, 1, 16, 32},
                                         {2, 1, 128, 64},
                                         {2, 2, 80, 128},
                                         {3, 1, 192, 16},
                                         {2, 1, 512, 16},
                                         {16, 1, 96, 16},
                                         {14, 2, 64, 7},
                                         {8, 8, 32, 32},
                                         {5, 1, 256, 48}}) {
    for (const DType dtype : CacheTypes(GetParam())) {
      if (odd.head_dim % Info(dtype).block_elements != 0) continue;
      const Geometry g = {.num_heads = odd.heads,
                          .num_kv_heads = odd.kv_heads,
                          .head_dim = odd.head_dim,
                          .block_size = odd.block_size,
                          .dtype = dtype};
      CheckAttention(*ops, *reference,
                     RandomCase(random, g, {{3, 3}, {130, 1}, {90, 70}, {281, 2}}), worst,
                     fmt::format("{}/{} heads of {}, blocks of {}, {}", odd.heads, odd.kv_heads,
                                 odd.head_dim, odd.block_size, Name(dtype)));
    }
  }
}

// Queries in an inner type give what their values give in f32.
TEST_P(AttentionOps, InnerQueriesAreReadAsTheirValues) {
  const DType inner = GetParam().inner;
  if (inner == DType::kF32) GTEST_SKIP() << "all queries are f32";
  std::mt19937_64 random(9);
  const auto ops = Make(1);
  for (const int head_dim : {20, 64, 128}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      AttentionCase c = RandomCase(random, {.head_dim = head_dim, .dtype = dtype},
                                   {{300, 1}, {65, 2}, {180, 130}});
      c.q = RoundTo(inner, c.q);
      const AttentionResult expected = RunAttention(*ops, c);
      for (c.gap = 7; c.gap < 9; ++c.gap) {
        for (const DType q_type : {DType::kF32, inner}) {
          c.q_type = q_type;
          const AttentionResult actual = RunAttention(*ops, c);
          EXPECT_TRUE(SameBits(actual.out, expected.out)) << head_dim << ", gap " << c.gap;
          EXPECT_TRUE(SameBits(actual.lse, expected.lse)) << head_dim << ", gap " << c.gap;
        }
      }
    }
  }
}

TEST_P(AttentionOps, LargeScoresDoNotOverflow) {
  std::mt19937_64 random(3);
  const auto ops = Make(1);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} attention, large scores", ops->name()));
  AttentionCase c = RandomCase(random, {}, {{400, 3}});
  for (float& q : c.q) q *= 100;
  CheckAttention(*ops, *reference, c, worst, "scores in the hundreds");
}

TEST_P(AttentionOps, CapsAndSinksMatchTheReference) {
  std::mt19937_64 random(9);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} attention, caps and sinks", ops->name()));
  for (const int window : {0, 70}) {
    for (const float softcap : {0.0f, 0.5f, 50.0f}) {
      for (const float sink : {0.0f, 3.0f, -40.0f, 60.0f}) {
        if (softcap != 0 && !ops->capabilities().Has(Capability::kAttentionSoftcap)) continue;
        if (sink != 0 && !ops->capabilities().Has(Capability::kSinks)) continue;
        AttentionCase c = RandomCase(random, {.window = window}, MixedBatch());
        c.softcap = softcap;
        if (sink != 0) c.sinks = {sink, 0.5f * sink, 0, -sink};
        CheckAttention(*ops, *reference, c, worst,
                       fmt::format("window {}, cap {}, sinks {}", window, softcap, sink));
      }
    }
  }
}

// Whole sequences in one step, with lengths around every cut.
TEST_P(AttentionOps, NonCausalAttentionMatchesTheReference) {
  std::mt19937_64 random(10);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kNonCausal)) return;
  const auto reference = MakeReferenceOps();
  for (const DType dtype : CacheTypes(GetParam())) {
    WorstError worst(fmt::format("{} attention, not causal, {}", ops->name(), Name(dtype)));
    const Geometry g = {.head_dim = 32, .dtype = dtype, .causal = false};
    const AttentionCase c =
        RandomCase(random, g, {{1, 1}, {17, 17}, {64, 64}, {2, 2}, {257, 257}, {65, 65}});
    CheckAttention(*ops, *reference, c, worst, "all of each");
    // Unlike with causality, the first token sees the last.
    AttentionCase causal = c;
    causal.geometry.causal = true;
    const AttentionResult a = RunAttention(*reference, c), b = RunAttention(*reference, causal);
    EXPECT_FALSE(SameBits({a.out.begin() + 128, a.out.begin() + 256},
                          {b.out.begin() + 128, b.out.begin() + 256}));
    // Results do not depend on other sequences or the number of threads.
    const AttentionResult all = RunAttention(*ops, c);
    const auto others = Make(3);
    EXPECT_TRUE(SameBits(RunAttention(*others, c).out, all.out));
    for (size_t s = 0; s < c.seq_lens.size(); ++s) {
      const int64_t first = c.query_start_loc[s], end = c.query_start_loc[s + 1];
      const AttentionResult alone =
          RunAttention(*ops, OnlyQueries(c, static_cast<int64_t>(s), 0, end - first));
      EXPECT_TRUE(SameBits(alone.out, {all.out.begin() + first * 128, all.out.begin() + end * 128}))
          << Name(dtype) << ", sequence " << s;
    }
  }
}

// Ranges at the beginning, in the middle and at the end of a sequence's queries, next to each
// other, of one query, and longer than the window; tiles for few queries and for many.
AttentionCase WithRanges(std::mt19937_64& random, int window, DType dtype, int head_dim) {
  const Geometry g = {.head_dim = head_dim, .window = window, .dtype = dtype};
  AttentionCase c =
      RandomCase(random, g, {{1, 1}, {17, 17}, {300, 1}, {330, 60}, {64, 64}, {300, 7}});
  c.bidirectional = {{1, 4}, {9, 18}, {19, 40}, {40, 41}, {41, 70}, {79, 143}, {144, 149}};
  return c;
}

TEST_P(AttentionOps, QueriesOfARangeSeeEachOther) {
  std::mt19937_64 random(14);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kNonCausal)) return;
  const auto reference = MakeReferenceOps();
  for (const DType dtype : CacheTypes(GetParam())) {
    WorstError worst(fmt::format("{} attention, ranges, {}", ops->name(), Name(dtype)));
    for (const int window : {0, 70}) {
      const AttentionCase c = WithRanges(random, window, dtype, 64);
      CheckAttention(*ops, *reference, c, worst, fmt::format("window {}", window));
      const AttentionResult all = RunAttention(*ops, c);
      const auto others = Make(3);
      EXPECT_TRUE(SameBits(RunAttention(*others, c).out, all.out));
      // In parts that end where no range does: the last one begins within a range.
      for (const auto& [begin, end] : {std::pair{0, 22}, {22, 51}, {51, 60}, {30, 51}}) {
        const AttentionResult some = RunAttention(*ops, OnlyQueries(c, 3, begin, end));
        EXPECT_TRUE(SameBits(
            some.out, {all.out.begin() + (19 + begin) * 256, all.out.begin() + (19 + end) * 256}))
            << Name(dtype) << ", window " << window << ", queries " << begin << " to " << end;
      }
    }
  }
}

// Without windows, equal queries of a range give equal results, also in the reference.
TEST_P(AttentionOps, QueriesOfARangeSeeTheSameKeys) {
  std::mt19937_64 random(15);
  const auto ops = Make(1);
  if (Lacks(*ops, Capability::kNonCausal)) return;
  AttentionCase c = WithRanges(random, 0, DType::kF32, 32);
  constexpr int64_t kWidth = 4 * 32;
  for (int64_t t = 1; t < c.num_tokens(); ++t) {
    std::copy_n(c.q.begin(), kWidth, c.q.begin() + t * kWidth);
  }
  const auto reference = MakeReferenceOps();
  for (Ops* const each : {ops.get(), reference.get()}) {
    const std::vector<float> out = RunAttention(*each, c).out;
    const auto row = [&](int64_t t) {
      return std::vector<float>(out.begin() + t * kWidth, out.begin() + (t + 1) * kWidth);
    };
    for (const BatchRows& range : c.bidirectional) {
      for (int64_t t = range.begin; t < range.end; ++t) {
        EXPECT_TRUE(SameBits(row(t), row(range.end - 1))) << each->name() << ", token " << t;
      }
      EXPECT_FALSE(SameBits(row(range.begin - 1), row(range.begin))) << each->name();
    }
  }
}

// On CUDA a value that is NaN harms only the queries of a range in whose windows it is. (CPUs
// multiply it by zero for others of the same sequence.)
TEST_P(AttentionOps, QueriesOfARangeHaveWindowsOfTheirOwn) {
  std::mt19937_64 random(16);
  const auto ops = Make(2);
  if (!ops->name().starts_with("cuda")) GTEST_SKIP() << "zero times NaN is NaN";
  if (Lacks(*ops, Capability::kNonCausal)) return;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionCase c = WithRanges(random, 70, dtype, 64);
    const AttentionResult before = RunAttention(*ops, c);
    const auto harm = [&](size_t s, int32_t key) {
      const int32_t first = c.seq_lens[s] - (c.query_start_loc[s + 1] - c.query_start_loc[s]) - 69;
      const size_t entry = c.first_slot[s] + static_cast<size_t>(key - std::max(0, first));
      std::fill_n(c.keys_values.begin() + static_cast<std::ptrdiff_t>((2 * entry + 1) * 128), 128,
                  NAN);
    };
    // Sequence 3 begins at position 270 with token 19, sequence 5 at 293 with token 143.
    harm(3, 301 - 69);  // tokens 19 to 50 see it, 41 and behind in the range [41, 70)
    harm(5, 295 - 69);  // tokens 143 to 145
    const AttentionResult after = RunAttention(*ops, c);
    for (int64_t t = 0; t < c.num_tokens(); ++t) {
      const bool sees = (t >= 19 && t <= 50) || (t >= 143 && t <= 145);
      for (int64_t i = t * 256; i < (t + 1) * 256; ++i) {
        const auto at = static_cast<size_t>(i);
        if (sees) {
          ASSERT_TRUE(std::isnan(after.out[at])) << Name(dtype) << ", token " << t;
        } else {
          ASSERT_EQ(after.out[at], before.out[at]) << Name(dtype) << ", token " << t;
        }
      }
    }
  }
}

// With equal keys the slope alone decides the weights: 2^(-distance) for a slope of ln 2.
TEST_P(AttentionOps, AlibiSlopesWeighKeysByTheirDistance) {
  std::mt19937_64 random(10);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kAlibi)) return;
  AttentionCase c =
      RandomCase(random, {.num_heads = 2, .num_kv_heads = 1, .head_dim = 16}, {{40, 3}, {300, 1}});
  const float ln2 = std::log(2.0f);
  c.slopes = {ln2, 0};
  std::fill(c.q.begin(), c.q.end(), 0.0f);
  const AttentionResult result = RunAttention(*ops, c);
  const int64_t first_keys[] = {0, 40};  // in keys_values, which is ordered by sequence
  for (int64_t row = 0; row < c.num_tokens(); ++row) {
    const int64_t s = row < 3 ? 0 : 1;
    const int64_t position = s == 0 ? 37 + row : 299;
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 16; ++i) {
        double sum = 0, value = 0;
        for (int64_t key = 0; key <= position; ++key) {
          const double weight = h == 0 ? std::exp2(static_cast<double>(key - position)) : 1;
          sum += weight;
          value +=
              weight * c.keys_values[static_cast<size_t>(((first_keys[s] + key) * 2 + 1) * 16 + i)];
        }
        EXPECT_NEAR(result.out[static_cast<size_t>((row * 2 + h) * 16 + i)], value / sum, 1e-5);
      }
    }
  }
}

TEST_P(AttentionOps, AlibiSlopesMatchTheReference) {
  std::mt19937_64 random(11);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kAlibi)) return;
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} attention, slopes", ops->name()));
  for (const int window : {0, 70}) {
    for (const float sink : {0.0f, 2.0f}) {
      if (sink != 0 && !ops->capabilities().Has(Capability::kSinks)) continue;
      AttentionCase c = RandomCase(random, {.window = window}, MixedBatch());
      c.slopes = {0.5f, 0.25f, 0.00390625f, 0.03f};
      if (sink != 0) c.sinks = {sink, 0.5f * sink, 0, -sink};
      CheckAttention(*ops, *reference, c, worst, fmt::format("window {}, sinks {}", window, sink));
    }
  }
}

// Over a cache that tensor cores could read; the prompts are long enough for their wide tiles.
TEST_P(AttentionOps, EditedScoresDependOnNothingButTheRow) {
  std::mt19937_64 random(12);
  const auto ops = Make(2);
  if (Lacks(*ops, {Capability::kAttentionSoftcap, Capability::kSinks, Capability::kAlibi})) return;
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} attention, edited scores", ops->name()));
  // The first sequence is one wide tile whose splits go to several CTAs, even where these are few.
  AttentionCase c = RandomCase(random, {.num_kv_heads = 1, .dtype = DType::kBF16},
                               {{1100, 30}, {64, 64}, {40, 1}});
  c.softcap = 20;
  c.sinks = {2, 1, 0, -2};
  const int64_t width = static_cast<int64_t>(c.geometry.num_heads) * c.geometry.head_dim;
  for (const std::vector<float>& slopes :
       {std::vector<float>{}, std::vector<float>{0.5f, 0.25f, 0.00390625f, 0.03f}}) {
    c.slopes = slopes;
    CheckAttention(*ops, *reference, c, worst, slopes.empty() ? "without slopes" : "with slopes");
    const AttentionResult all = RunAttention(*ops, c);
    for (size_t s = 0; s < c.seq_lens.size(); ++s) {
      const int64_t first = c.query_start_loc[s], length = c.query_start_loc[s + 1] - first;
      for (int64_t begin = 0; begin < length; begin += 13) {
        const int64_t end = std::min(length, begin + 13);
        const AttentionResult some =
            RunAttention(*ops, OnlyQueries(c, static_cast<int64_t>(s), begin, end));
        ASSERT_TRUE(SameBits(some.out, {all.out.begin() + (first + begin) * width,
                                        all.out.begin() + (first + end) * width}))
            << "sequence " << s << ", queries " << begin << " to " << end;
      }
    }
  }
}

// With eight rows per token, more tokens would have wide tiles, which the graph does not launch.
TEST_P(AttentionOps, AGraphFitsAnyDivisionOfItsTokens) {
  const auto ops = Make(2);
  if (!ops->has_graphs()) GTEST_SKIP() << "the backend has no graphs";
  std::mt19937_64 random(13);
  const Geometry g = {.num_heads = 8, .num_kv_heads = 1, .head_dim = 64, .dtype = DType::kBF16};
  for (const std::vector<SequenceShape>& sequences :
       {std::vector<SequenceShape>{{300, kMaxGraphQueries}, {40, 1}, {90, 5}},
        std::vector<SequenceShape>{{kMaxGraphQueries, kMaxGraphQueries}}}) {
    AttentionCase c = RandomCase(random, g, sequences);
    const AttentionResult expected = RunAttention(*ops, c);
    const size_t size = expected.out.size();
    AddPadding(c, 3);
    c.as_graph = true;
    std::vector<float> out = RunAttention(*ops, c).out;
    out.resize(size);  // without the padding
    EXPECT_TRUE(SameBits(out, expected.out));
  }
}

TEST_P(AttentionOps, OutputsInTheActivationTypeAreRounded) {
  std::mt19937_64 random(7);
  const auto ops = Make(2);
  AttentionCase c = RandomCase(random, {}, {{40, 3}, {300, 2}, {1000, 1}});
  const std::vector<float> exact = RunAttention(*ops, c).out;
  for (const DType activation : GetParam().activations) {
    c.out_type = activation;
    EXPECT_TRUE(SameBits(RunAttention(*ops, c).out, RoundTo(activation, exact)))
        << Name(activation);
  }
}

// Many workers share the splits of one sequence. Later cases have too many sequences to split.
TEST_P(AttentionOps, LongSequencesMatchTheReference) {
  std::mt19937_64 random(8);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} attention, long", ops->name()));
  const Geometry g = {.num_heads = 4, .num_kv_heads = 1, .head_dim = 16, .dtype = DType::kF16};
  CheckAttention(*ops, *reference, RandomCase(random, g, {{9000, 1}}), worst, "one");
  CheckAttention(*ops, *reference, RandomCase(random, g, {{4000, 9}, {6000, 1}, {30, 30}}), worst,
                 "three");
  std::vector<SequenceShape> many(40, {2500, 1});
  many.resize(90, {300, 2});
  std::vector<SequenceShape> one_long(80, {40, 1});
  one_long[30] = {5000, 1};
  CheckAttention(*ops, *reference, RandomCase(random, g, one_long), worst, "one of eighty");
  CheckAttention(*ops, *reference, RandomCase(random, g, many), worst, "ninety");
}

TEST_P(AttentionOps, AnEmptyBatchIsNoWork) {
  std::mt19937_64 random(4);
  const auto ops = Make(2);
  EXPECT_TRUE(RunAttention(*ops, RandomCase(random, {}, {})).out.empty());
}

TEST_P(AttentionOps, ARowsBitsDependOnNothingButTheRow) {
  std::mt19937_64 random(5);
  for (const DType dtype : CacheTypes(GetParam())) {
    for (const int window : {0, 100}) {
      const Geometry g = {.num_heads = 6,
                          .num_kv_heads = 2,
                          .head_dim = dtype == DType::kQ8_0 ? 96 : 40,
                          .block_size = window == 0 ? 16 : 9,
                          .window = window,
                          .dtype = dtype};
      const AttentionCase c = RandomCase(random, g, MixedBatch());
      const auto ops = Make(1);
      const AttentionResult all = RunAttention(*ops, c);
      for (const int threads : {2, 3}) {
        const auto others = Make(threads);
        const AttentionResult again = RunAttention(*others, c);
        EXPECT_TRUE(SameBits(again.out, all.out)) << threads << " threads";
        EXPECT_TRUE(SameBits(again.lse, all.lse)) << threads << " threads";
      }
      const auto pair = Make(2);
      for (size_t s = 0; s < c.seq_lens.size(); ++s) {
        const int64_t first = c.query_start_loc[s], length = c.query_start_loc[s + 1] - first;
        // Whole, token by token (most of the calls), and in chunks of 7.
        for (const int64_t chunk : {length, int64_t{1}, int64_t{7}}) {
          if (testing::kSanitized && chunk == 1) continue;
          for (int64_t begin = 0; begin < length; begin += chunk) {
            const int64_t end = std::min(length, begin + chunk);
            const AttentionResult some =
                RunAttention(*pair, OnlyQueries(c, static_cast<int64_t>(s), begin, end));
            const int64_t width = static_cast<int64_t>(g.num_heads) * g.head_dim;
            ASSERT_TRUE(SameBits(some.out, {all.out.begin() + (first + begin) * width,
                                            all.out.begin() + (first + end) * width}))
                << Name(dtype) << ", sequence " << s << ", queries " << begin << " to " << end;
            ASSERT_TRUE(SameBits(some.lse, {all.lse.begin() + (first + begin) * g.num_heads,
                                            all.lse.begin() + (first + end) * g.num_heads}));
          }
        }
      }
    }
  }
}

// The current chunk's keys also come from the cache, so a NaN in one sequence stays there.
TEST_P(AttentionOps, NanInOneSequenceHarmsNoOther) {
  std::mt19937_64 random(6);
  const auto ops = Make(2);
  AttentionCase c = RandomCase(random, {}, {{40, 3}, {300, 2}, {20, 20}});
  const AttentionResult before = RunAttention(*ops, c);
  const int64_t width = static_cast<int64_t>(c.geometry.num_heads) * c.geometry.head_dim;
  for (int64_t i = 3 * width; i < 5 * width; ++i) c.q[static_cast<size_t>(i)] = NAN;
  const AttentionResult after = RunAttention(*ops, c);
  for (int64_t i = 0; i < static_cast<int64_t>(after.out.size()); ++i) {
    const auto at = static_cast<size_t>(i);
    if (i >= 3 * width && i < 5 * width) {
      ASSERT_TRUE(std::isnan(after.out[at])) << i;
    } else {
      ASSERT_EQ(after.out[at], before.out[at]) << i;
    }
  }
}

}  // namespace
}  // namespace tokamak::attention_test
