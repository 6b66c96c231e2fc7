// Latent attention on tensor cores: attention to latents and the products of each head give, bit by
// bit, what their recipes give for each row alone, and results close to exact ones.
#include "ops/cuda/latent_attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/testing/sanitizers.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/testing/attention_problem.h"
#include "ops/cuda/testing/device_array.h"
#include "quant/half.h"

namespace tokamak::cuda::attention_test {
namespace {

Geometry Latents(int num_heads, int block_size = 16) {
  return {.num_heads = num_heads,
          .num_kv_heads = 1,
          .head_dim = 576,
          .block_size = block_size,
          .window = 0,
          .latent_dim = 512};
}

void CheckLatentRecipe(const Geometry& g, const std::vector<Sequence>& sequences) {
  const Problem p = MakeProblem(g, sequences);
  const Outputs expected = Expect(p);
  for (const Cut& cut : InFormsHere({Cut{.ctas = 1}, Cut{.spread = 1, .ctas = 3},
                                     Cut{.tile_rows = 5, .spread = 2, .ctas = 2}})) {
    const Outputs actual = Attend(p, cut);
    EXPECT_TRUE(actual.out == expected.out) << "rows " << cut.tile_rows << ", " << cut.spread;
    EXPECT_TRUE(actual.lse == expected.lse) << "rows " << cut.tile_rows << ", " << cut.spread;
  }
}

TEST(LatentAttention, DecodingRowsGiveTheBitsOfTheRecipe) {
  CheckLatentRecipe(Latents(16), {{65, 1}, {1, 1}});
  CheckLatentRecipe(Latents(3), {{64, 1}, {300, 1}});
}

// A tile has rows of several tokens, and a token has rows in several tiles.
TEST(LatentAttention, ChunksOfPromptsGiveTheBitsOfTheRecipe) {
  CheckLatentRecipe(Latents(5, 64), {{20, 6}, {270, 3}});
  CheckLatentRecipe(Latents(20, 128), {{130, 2}});
}

void CheckOthers(const Problem& p, const Outputs& expected) {
  for (const Cut& cut :
       {Cut{.tile_rows = kWideLatentRows, .ctas = 1, .wide = true, .bf16_queries = true},
        Cut{.tile_rows = 37, .ctas = 3, .wide = true},
        Cut{.tile_rows = kWideLatentRows, .spread = 1, .ctas = 3, .wide = true},
        Cut{.ctas = 3, .form = KernelForm::kAmpere}}) {
    const Outputs actual = Attend(p, cut);
    EXPECT_TRUE(actual.out == expected.out) << "rows " << cut.tile_rows << ", " << cut.spread;
    EXPECT_TRUE(actual.lse == expected.lse) << "rows " << cut.tile_rows << ", " << cut.spread;
  }
}

TEST(LatentAttention, WideTilesGiveTheBitsOfTheRecipe) {
  const Problem p = MakeProblem(Latents(7), {{70, 3}, {300, 10}});
  CheckOthers(p, Expect(p));
}

TEST(LatentAttention, BothKernelsAndFormsGiveTheSameBits) {
  const auto check = [](const Problem& p) { CheckOthers(p, Attend(p)); };
  if (!testing::kSanitized) {  // the next one covers the same memory errors, in a minute less
    check(MakeProblem(Latents(16, 64), {{33, 9}, {1, 1}, {514, 3}}));
    check(MakeProblem(Latents(128), {{65, 1}, {258, 1}}));
  }
  Geometry window = Latents(5, 8);
  window.window = 60;
  check(MakeProblem(window, {{270, 17}}));
}

TEST(LatentAttention, ACacheInFp8GivesTheBitsOfABf16CacheWithItsValues) {
  Geometry window = Latents(5, 8);
  window.window = 60;
  for (const Problem& p : {InFp8(MakeProblem(window, {{270, 17}})),
                           InFp8(MakeProblem(Latents(16, 64), {{33, 9}, {1, 1}, {514, 3}})),
                           InFp8(MakeProblem(Latents(20, 128), {{130, 2}}))}) {
    const Outputs expected = Attend(p);
    for (const Cut& cut : InFormsHere(
             {Cut{.ctas = 1, .fp8 = true}, Cut{.tile_rows = 5, .spread = 1, .ctas = 3, .fp8 = true},
              Cut{.tile_rows = kWideLatentRows, .ctas = 1, .wide = true, .fp8 = true},
              Cut{.tile_rows = 37, .spread = 1, .ctas = 3, .wide = true, .fp8 = true}})) {
      const Outputs actual = Attend(p, cut);
      EXPECT_TRUE(actual.out == expected.out && actual.lse == expected.lse)
          << "rows " << cut.tile_rows << ", " << cut.spread;
    }
  }
}

void CheckLateStores(const Problem& p, bool fp8) {
  const Outputs expected = Attend(p);
  for (int i = 0; i < 3; ++i) {
    for (const bool keys_last : {false, true}) {
      for (Cut cut : InFormsHere({Cut{.ctas = 1}, Cut{.spread = 2},
                                  Cut{.tile_rows = kWideLatentRows, .ctas = 1, .wide = true}})) {
        cut.late = true;
        cut.keys_last = keys_last;
        cut.fp8 = fp8;
        const Outputs actual = Attend(p, cut);
        EXPECT_TRUE(actual.out == expected.out && actual.lse == expected.lse) << i;
      }
    }
  }
}

// The smaller problem meets in more orders what is not yet stored, as in MmaAttention's test of
// this name.
TEST(LatentAttention, WhatTheKernelsAheadStoreIsReadAfterThem) {
  for (const Problem& p :
       {MakeProblem(Latents(4), {{20, 1}}), MakeProblem(Latents(4), {{100, 1}, {31, 3}})}) {
    CheckLateStores(p, /*fp8=*/false);
    CheckLateStores(InFp8(p), /*fp8=*/true);
  }
}

TEST(LatentAttention, IsSoftmaxOfScoresTimesValues) {
  Problem p = MakeProblem(Latents(2), {{300, 1}});
  const Outputs actual = Attend(p);
  for (int head = 0; head < 2; ++head) {
    std::vector<double> weights;
    double sum = 0;
    for (int key = 0; key < 300; ++key) {
      const uint16_t* k = p.At(0, key, 0, false);
      double score = 0;
      for (int d = 0; d < 576; ++d) {
        score += double{p.q[static_cast<size_t>(head) * 576 + static_cast<size_t>(d)]} *
                 BFloat16ToFloat(k[d]);
      }
      weights.push_back(std::exp(score * p.scale));
      sum += weights.back();
    }
    for (int d = 0; d < 512; ++d) {
      double value = 0;
      for (int key = 0; key < 300; ++key) {
        value += weights[static_cast<size_t>(key)] / sum *
                 BFloat16ToFloat(p.At(0, key, 0, false)[64 + d]);
      }
      EXPECT_NEAR(std::bit_cast<float>(actual.out[static_cast<size_t>(head * 512 + d)]), value,
                  0.05);
    }
  }
}

// A later position's latent is not finite: rows before it, in the same tile, do not see it.
TEST(LatentAttention, LatentsThatARowDoesNotSeeDoNotReachIt) {
  const Problem healthy = MakeProblem(Latents(3), {{70, 5}});
  Problem sick = healthy;
  sick.At(0, 68, 0, true)[5] = 0x7fc0;
  // Position 67, query 2, is the last that does not see position 68.
  for (const Cut& cut : InFormsHere({Cut{}, kWideLatent})) {
    ExpectNanFrom(3, Attend(sick, cut), Attend(healthy), 3 * 512);
  }
  for (Cut cut : InFormsHere({Cut{}, kWideLatent})) {
    cut.fp8 = true;
    ExpectNanFrom(3, Attend(InFp8(sick), cut), Attend(InFp8(healthy)), 3 * 512);
  }
}

TEST(LatentAttention, CachesThatItCannotReadAreRefused) {
  KvLayerView cache = {.base = nullptr,
                       .block_stride = 32768,
                       .k_offset = 0,
                       .v_offset = 128,
                       .dtype = DType::kBF16,
                       .block_size = 16,
                       .num_kv_heads = 1,
                       .head_dim = 576,
                       .value_dim = 512,
                       .values_in_keys = true};
  EXPECT_TRUE(LatentAttentionReads(cache));
  cache.k_offset = 8;
  cache.v_offset = 136;
  EXPECT_FALSE(LatentAttentionReads(cache));
  cache.k_offset = 0;
  cache.v_offset = 0;
  EXPECT_FALSE(LatentAttentionReads(cache));
  cache.v_offset = 64;
  EXPECT_FALSE(LatentAttentionReads(cache));
  cache.dtype = DType::kF8E4M3;  // 64 elements
  EXPECT_TRUE(LatentAttentionReads(cache));
  cache.dtype = DType::kBF16;
  cache.v_offset = 128;
  cache.head_dim = 320;
  cache.value_dim = 256;
  EXPECT_FALSE(LatentAttentionReads(cache));
}

struct HeadProduct {
  int tokens, heads, rows, cols, copied;
  bool x_bf16, out_bf16;
};

// out[t, h] = [copied | W_h · x[t, h]] with x [T, heads, copied + cols], as queries are.
void CheckHeadLinear(const HeadProduct& g) {
  std::mt19937 random(static_cast<unsigned>(g.tokens + g.cols));
  std::normal_distribution<float> normal;
  const int x_cols = g.copied + g.cols, out_cols = g.copied + g.rows;
  std::vector<float> x;
  std::vector<uint16_t> x_bits, weights;
  for (int i = 0; i < g.tokens * g.heads * x_cols; ++i) {
    x.push_back(normal(random));
    x_bits.push_back(FloatToBFloat16(x.back()));
  }
  for (int i = 0; i < g.heads * g.rows * g.cols; ++i) {
    weights.push_back(FloatToBFloat16(normal(random)));
  }
  const DeviceArray<float> x_floats(x);
  const DeviceArray<uint16_t> x_halves(x_bits), device_weights(weights);
  DeviceArray<float> out_floats(static_cast<size_t>(g.tokens * g.heads * out_cols));
  DeviceArray<uint16_t> out_halves(static_cast<size_t>(g.tokens * g.heads * out_cols));
  const HeadLinearArgs::Columns columns = {
      .data = g.x_bf16 ? static_cast<const void*>(x_halves.data()) : x_floats.data(),
      .bf16 = g.x_bf16,
      .stride = int64_t{g.heads} * x_cols,
      .first = 0,
      .step = x_cols,
      .cols = g.copied};
  HeadLinearArgs args = {.x = columns,
                         .copied = columns,
                         .weights = device_weights.data(),
                         .out = g.out_bf16 ? static_cast<void*>(out_halves.data())
                                           : static_cast<void*>(out_floats.data()),
                         .weights_bf16 = true,
                         .out_bf16 = g.out_bf16,
                         .num_tokens = g.tokens,
                         .num_heads = g.heads,
                         .rows = g.rows,
                         .out_stride = int64_t{g.heads} * out_cols};
  args.x.first = g.copied;
  args.x.cols = g.cols;
  const CudaTestStream stream;
  ASSERT_TRUE(HasMmaHeadLinear(args));
  ASSERT_EQ(LaunchMmaHeadLinear(args, stream.get()), cudaSuccess);
  std::vector<float> actual;
  if (g.out_bf16) {
    for (const uint16_t bits : out_halves.Download(stream)) actual.push_back(BFloat16ToFloat(bits));
  } else {
    actual = out_floats.Download(stream);
  }
  size_t at = 0;
  for (int64_t row = 0; row < int64_t{g.tokens} * g.heads; ++row) {
    std::vector<float> expected;
    for (int d = 0; d < g.copied; ++d) {
      const auto i = static_cast<size_t>(row * x_cols + d);
      expected.push_back(g.x_bf16 ? BFloat16ToFloat(x_bits[i]) : x[i]);
    }
    std::vector<float> sums(static_cast<size_t>(g.rows));
    for (int k = 0; k < g.cols; k += 16) {
      emulation::MultiplyAccumulate(
          emulation::Instruction::kMma, TensorCoreSums(), {1, g.rows, 16},
          {.elements = &x_bits[static_cast<size_t>(row * x_cols + g.copied + k)],
           .type = ElementType::kBf16,
           .row_stride = 16},
          {.elements = &weights[static_cast<size_t>(row % g.heads * g.rows * g.cols + k)],
           .type = ElementType::kBf16,
           .row_stride = 1,
           .column_stride = g.cols},
          sums.data());
    }
    expected.insert(expected.end(), sums.begin(), sums.end());
    for (const float value : expected) {
      const float rounded = g.out_bf16 ? BFloat16ToFloat(FloatToBFloat16(value)) : value;
      ASSERT_EQ(std::bit_cast<uint32_t>(actual[at]), std::bit_cast<uint32_t>(rounded))
          << "row " << row << ", element " << at % static_cast<size_t>(out_cols);
      ++at;
    }
  }
}

TEST(HeadLinear, ProductsGiveTheBitsOfTheRecipe) {
  CheckHeadLinear({.tokens = 1,
                   .heads = 2,
                   .rows = 512,
                   .cols = 128,
                   .copied = 64,
                   .x_bf16 = false,
                   .out_bf16 = true});
  CheckHeadLinear({.tokens = 3,
                   .heads = 2,
                   .rows = 128,
                   .cols = 512,
                   .copied = 0,
                   .x_bf16 = true,
                   .out_bf16 = true});
  CheckHeadLinear({.tokens = 19,
                   .heads = 3,
                   .rows = 72,
                   .cols = 48,
                   .copied = 4,
                   .x_bf16 = false,
                   .out_bf16 = false});
  CheckHeadLinear({.tokens = 70,
                   .heads = 1,
                   .rows = 24,
                   .cols = 32,
                   .copied = 8,
                   .x_bf16 = true,
                   .out_bf16 = false});
  // So many CTAs that each has 64 tokens.
  CheckHeadLinear({.tokens = 70,
                   .heads = 16,
                   .rows = 256,
                   .cols = 48,
                   .copied = 12,
                   .x_bf16 = false,
                   .out_bf16 = true});
  CheckHeadLinear({.tokens = 66,
                   .heads = 64,
                   .rows = 64,
                   .cols = 144,
                   .copied = 4,
                   .x_bf16 = true,
                   .out_bf16 = false});
  CheckHeadLinear({.tokens = 66,
                   .heads = 64,
                   .rows = 64,
                   .cols = 32,
                   .copied = 0,
                   .x_bf16 = true,
                   .out_bf16 = true});
}

}  // namespace
}  // namespace tokamak::cuda::attention_test
