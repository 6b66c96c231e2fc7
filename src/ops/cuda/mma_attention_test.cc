// Attention on tensor cores: all kernels give, bit by bit, what the recipe of mma_attention.h
// gives for each row alone, and results close to exact attention.
#include "ops/cuda/mma_attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "ops/cuda/testing/attention_problem.h"
#include "quant/half.h"

namespace tokamak::cuda::attention_test {
namespace {

void CheckRecipe(const Geometry& g, const std::vector<Sequence>& sequences) {
  const Problem p = MakeProblem(g, sequences);
  const Outputs expected = Expect(p);
  for (const Cut& cut :
       InFormsHere({Cut{}, Cut{.spread = 1, .ctas = 3}, Cut{.tile_rows = 5, .ctas = 1},
                    Cut{.ctas = 9}, Cut{.tile_rows = 5, .spread = 2, .ctas = 2}, kWide,
                    Cut{.tile_rows = 72, .spread = 1, .ctas = 3, .wide = true}})) {
    if (cut.wide && !HasWideAttention(g.head_dim)) continue;
    const Outputs actual = Attend(p, cut);
    EXPECT_TRUE(actual.out == expected.out) << "rows " << cut.tile_rows << ", " << cut.spread;
    EXPECT_TRUE(actual.lse == expected.lse) << "rows " << cut.tile_rows << ", " << cut.spread;
  }
}

TEST(MmaAttention, DecodingRowsGiveTheBitsOfTheRecipe) {
  CheckRecipe({.num_heads = 8, .num_kv_heads = 2, .head_dim = 128, .block_size = 16, .window = 0},
              {{1, 1}, {64, 1}, {65, 1}, {300, 1}});
}

TEST(MmaAttention, ChunksOfPromptsGiveTheBitsOfTheRecipe) {
  CheckRecipe({.num_heads = 6, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .window = 0},
              {{20, 20}, {270, 9}, {1, 1}});
}

TEST(MmaAttention, WindowsGiveTheBitsOfTheRecipe) {
  CheckRecipe({.num_heads = 4, .num_kv_heads = 1, .head_dim = 64, .block_size = 8, .window = 70},
              {{300, 20}, {330, 1}, {50, 50}});
}

TEST(MmaAttention, BlocksLargerThanATile) {
  CheckRecipe({.num_heads = 2, .num_kv_heads = 1, .head_dim = 64, .block_size = 128, .window = 0},
              {{200, 3}});
}

TEST(MmaAttention, RowsThatSeeTheirWholeSequence) {
  CheckRecipe({.num_heads = 2,
               .num_kv_heads = 1,
               .head_dim = 64,
               .block_size = 16,
               .window = 0,
               .causal = false},
              {{20, 20}, {1, 1}, {270, 12}, {64, 64}});
}

TEST(MmaAttention, HeadsOf32GiveTheBitsOfTheRecipe) {
  CheckRecipe({.num_heads = 6, .num_kv_heads = 3, .head_dim = 32, .block_size = 16, .window = 0},
              {{70, 70}, {300, 1}, {1, 1}});
  CheckRecipe({.num_heads = 2, .num_kv_heads = 2, .head_dim = 32, .block_size = 8, .window = 70},
              {{300, 20}});
}

TEST(MmaAttention, HeadsOf96GiveTheBitsOfTheRecipe) {
  CheckRecipe({.num_heads = 4, .num_kv_heads = 2, .head_dim = 96, .block_size = 16, .window = 0},
              {{80, 40}, {300, 1}});
}

TEST(MmaAttention, HeadsOf256GiveTheBitsOfTheRecipe) {
  const Geometry g = {.num_heads = 4,
                      .num_kv_heads = 2,
                      .head_dim = 256,
                      .block_size = 8,
                      .window = 70,
                      .softcap = 5};
  CheckRecipe(g, {{80, 20}, {300, 1}});
  const Problem p = InFp8(MakeProblem(g, {{80, 20}}));
  const Outputs expected = Attend(p), actual = Attend(p, {.fp8 = true});
  EXPECT_TRUE(actual.out == expected.out && actual.lse == expected.lse);
}

TEST(MmaAttention, SinksAndCappedScoresGiveTheBitsOfTheRecipe) {
  CheckRecipe({.num_heads = 8,
               .num_kv_heads = 2,
               .head_dim = 64,
               .block_size = 16,
               .window = 70,
               .has_sinks = true},
              {{300, 1}, {100, 20}});
  CheckRecipe({.num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 128,
               .block_size = 16,
               .window = 0,
               .softcap = 3},
              {{300, 1}, {80, 40}});
}

// A shape that a random number chooses.
Problem RandomProblem(std::mt19937& random) {
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Geometry g;
  g.num_kv_heads = draw(1, 2);
  g.num_heads = g.num_kv_heads * draw(1, 6);
  constexpr int kHeadDims[] = {32, 64, 96, 128};  // those with wide tiles
  g.head_dim = kHeadDims[draw(0, 3)];
  g.block_size = 8 << draw(0, 4);
  g.window = draw(0, 1) * draw(1, 150);
  std::vector<Sequence> sequences;
  for (int s = draw(1, 2); s > 0; --s) {
    const int queries = draw(1, 180 / g.group());
    sequences.push_back({queries + draw(0, 1) * draw(0, 400), queries});
  }
  g.softcap = static_cast<float>(draw(0, 2) * 5);
  g.has_sinks = draw(0, 1) > 0;
  return MakeProblem(g, sequences);
}

TEST(MmaAttention, BothKernelsAndFormsGiveTheSameBits) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    const Problem p = RandomProblem(random);
    const auto tile_rows = static_cast<int>(1 + random() % kWideRows);
    const Outputs expected = Attend(p);
    for (const Cut& cut :
         InFormsHere({Cut{.spread = 2, .ctas = 3}, kWide,
                      Cut{.tile_rows = tile_rows, .ctas = 1, .wide = true},
                      Cut{.tile_rows = kWideRows, .spread = 2, .ctas = 3, .wide = true}})) {
      const Outputs actual = Attend(p, cut);
      EXPECT_TRUE(actual.out == expected.out && actual.lse == expected.lse)
          << "seed " << seed << ", rows " << cut.tile_rows << ", " << cut.spread;
    }
  }
}

TEST(MmaAttention, ACacheInFp8GivesTheBitsOfABf16CacheWithItsValues) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    const Problem p = InFp8(RandomProblem(random));
    const Outputs expected = Attend(p);
    for (const Cut& cut :
         InFormsHere({Cut{.fp8 = true}, Cut{.spread = 1, .ctas = 3, .fp8 = true},
                      Cut{.tile_rows = 5, .ctas = 1, .fp8 = true},
                      Cut{.tile_rows = kWideRows, .wide = true, .fp8 = true},
                      Cut{.tile_rows = 72, .spread = 1, .ctas = 3, .wide = true, .fp8 = true}})) {
      const Outputs actual = Attend(p, cut);
      EXPECT_TRUE(actual.out == expected.out && actual.lse == expected.lse)
          << "seed " << seed << ", rows " << cut.tile_rows << ", " << cut.spread;
    }
  }
}

void CheckLateStores(const Problem& p, bool fp8) {
  const Outputs expected = Attend(p);
  for (int i = 0; i < 4; ++i) {
    for (const bool keys_last : {false, true}) {
      for (Cut cut :
           InFormsHere({Cut{}, Cut{.spread = 1}, Cut{.tile_rows = kWideRows, .wide = true}})) {
        cut.late = true;
        cut.keys_last = keys_last;
        cut.fp8 = fp8;
        const Outputs actual = Attend(p, cut);
        EXPECT_TRUE(actual.out == expected.out && actual.lse == expected.lse) << i;
      }
    }
  }
}

// The smaller problem takes one CTA of each kernel, which then meets what is not yet stored in half
// of the emulator's orders. Of several CTAs, few do.
TEST(MmaAttention, WhatTheKernelsAheadStoreIsReadAfterThem) {
  for (const Problem& p :
       {MakeProblem(
            {.num_heads = 4, .num_kv_heads = 1, .head_dim = 64, .block_size = 16, .window = 0},
            {{100, 1}}),
        MakeProblem(
            {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .window = 0},
            {{100, 1}, {31, 3}, {300, 2}})}) {
    CheckLateStores(p, /*fp8=*/false);
    CheckLateStores(InFp8(p), /*fp8=*/true);
  }
}

TEST(MmaAttention, IsSoftmaxOfScoresTimesValues) {
  Problem p = MakeProblem(
      {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .window = 0},
      {{300, 2}});
  const Outputs actual = Attend(p);
  for (int row = 0; row < 8; ++row) {
    const int last = 298 + row / 4;
    std::vector<double> scores;
    for (int key = 0; key <= last; ++key) {
      const uint16_t* k = p.At(0, key, row % 4 / 2, false);
      double score = 0;
      for (int d = 0; d < 64; ++d) {
        score += double{p.q[static_cast<size_t>(int64_t{row} * 64 + d)]} * BFloat16ToFloat(k[d]);
      }
      scores.push_back(score * p.scale);
    }
    double sum = 0;
    for (const double score : scores) sum += std::exp(score);
    EXPECT_NEAR(std::bit_cast<float>(actual.lse[static_cast<size_t>(row)]), std::log(sum), 0.03);
    for (int d = 0; d < 64; ++d) {
      double value = 0;
      for (int key = 0; key <= last; ++key) {
        value += std::exp(scores[static_cast<size_t>(key)]) / sum *
                 BFloat16ToFloat(p.At(0, key, row % 4 / 2, true)[d]);
      }
      EXPECT_NEAR(std::bit_cast<float>(actual.out[static_cast<size_t>(int64_t{row} * 64 + d)]),
                  value, 0.05);
    }
  }
}

// A later position's values are not finite: rows before it, in the same tile, do not see them.
TEST(MmaAttention, ValuesThatARowDoesNotSeeDoNotReachIt) {
  const Geometry g = {
      .num_heads = 2, .num_kv_heads = 1, .head_dim = 64, .block_size = 16, .window = 0};
  const Problem healthy = MakeProblem(g, {{270, 80}});
  Problem sick = healthy;
  for (const bool value : {false, true}) sick.At(0, 266, 0, value)[5] = 0x7fc0;
  for (const Cut& cut : InFormsHere({Cut{}, kWide})) {
    // Position 265, query 75, is the last that does not see position 266.
    ExpectNanFrom(76, Attend(sick, cut), Attend(healthy, cut), 2 * 64);
  }
  for (const Cut& cut :
       InFormsHere({Cut{.fp8 = true}, Cut{.tile_rows = kWideRows, .wide = true, .fp8 = true}})) {
    ExpectNanFrom(76, Attend(InFp8(sick), cut), Attend(InFp8(healthy)), 2 * 64);
  }
}

TEST(MmaAttention, CachesThatItCannotReadAreRefused) {
  KvLayerView cache = {.base = nullptr,
                       .block_stride = 4096,
                       .k_offset = 0,
                       .v_offset = 2048,
                       .dtype = DType::kBF16,
                       .block_size = 16,
                       .num_kv_heads = 1,
                       .head_dim = 64};
  EXPECT_TRUE(MmaAttentionReads(cache));
  cache.head_dim = 80;
  EXPECT_FALSE(MmaAttentionReads(cache));
  cache.head_dim = 64;
  cache.v_offset = 2056;
  EXPECT_FALSE(MmaAttentionReads(cache));
  cache.v_offset = 2048;
  cache.dtype = DType::kF32;
  EXPECT_FALSE(MmaAttentionReads(cache));
  cache.dtype = DType::kF8E4M3;
  EXPECT_TRUE(MmaAttentionReads(cache));
  cache.v_offset = 2056;
  EXPECT_FALSE(MmaAttentionReads(cache));
  AttentionArgs args = {};
  args.cache = cache;
  EXPECT_EQ(LaunchAmpereAttention(args, 1, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace tokamak::cuda::attention_test
