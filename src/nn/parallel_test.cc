// The ranks' results, put together, equal those of a single rank.
#include "nn/parallel.h"

#include <gtest/gtest.h>

#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mla.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/testing/bench.h"

namespace tokamak::nn {
namespace {

using testing::Bench;
using testing::kTokens;

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
}

void Add(std::vector<float>& sum, const std::vector<float>& part) {
  sum.resize(part.size());
  for (size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
}

TEST(Parallel, RanksOfAColumnParallelLinearComputeNeighbouringOutputs) {
  Bench bench;
  const Tensor x = bench.Input(20);
  const auto make = [&](WeightLoad& load) {
    const IndexRange a = load.parallel.Shard(12), b = load.parallel.Shard(6);
    return Linear::Column(Builder(load) / "layer", {{"a", 12, a, ""}, {"b", 6, b, ""}}, 20, true);
  };
  WeightLoad whole = bench.Load({});
  const std::vector<float> expected = bench.Run(make(whole), x, 18);
  ASSERT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.spec.num_parameters, 18 * 20 + 18);
  for (int rank = 0; rank < 3; ++rank) {
    WeightLoad load = bench.Load({3, rank});
    const std::vector<float> mine = bench.Run(make(load), x, 6);
    ASSERT_TRUE(load.status.ok());
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(mine[t * 6 + i], expected[t * 18 + rank * 4 + i]);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(mine[t * 6 + 4 + i], expected[t * 18 + 12 + rank * 2 + i]);
      }
    }
  }
}

TEST(Parallel, RanksOfARowParallelLinearAddUp) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    Bench bench(dtype);
    const Tensor x = bench.Input(128);
    WeightLoad whole = bench.Load({});
    const std::vector<float> expected =
        bench.Run(Linear::Row(Builder(whole) / "down", 10, 128, {0, 128}, true), x, 10);
    std::vector<float> sum;
    for (int rank = 0; rank < 4; ++rank) {
      WeightLoad load = bench.Load({4, rank});
      const IndexRange shard = load.parallel.Shard(128);
      const Linear layer = Linear::Row(Builder(load) / "down", 10, 128, shard, true);
      ASSERT_TRUE(load.status.ok()) << load.status.ToString();
      EXPECT_EQ(layer.in_features(), 32);
      Add(sum, bench.Run(layer, x.Cols(shard.begin, shard.end), 10));
    }
    ExpectNear(sum, expected);
  }
}

TEST(Parallel, RefusesACutThroughABlock) {
  Bench bench(DType::kQ8_0);
  WeightLoad load = bench.Load({4, 1});
  Linear::Row(Builder(load) / "down", 10, 64, load.parallel.Shard(64), false);
  EXPECT_EQ(load.status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(load.status.message(),
            "down.weight: columns [16, 32) cut through a block of Q8_0 (32 elements)");
}

TEST(Parallel, RanksOfAnMlpAddUp) {
  Bench bench;
  const Tensor x = bench.Input(16);
  const MlpShape shape{16, 24, Activation::kSilu, true};
  WeightLoad whole = bench.Load({});
  const std::vector<float> expected = bench.Run(Mlp(Builder(whole) / "mlp", shape), x, 16);
  std::vector<float> sum;
  for (int rank = 0; rank < 3; ++rank) {
    WeightLoad load = bench.Load({3, rank});
    Add(sum, bench.Run(Mlp(Builder(load) / "mlp", shape), x, 16));
    ASSERT_TRUE(load.status.ok());
  }
  ExpectNear(sum, expected);
}

// 8 heads and 2 KV heads on 1 … 8 ranks: KV heads are sharded, then replicated.
TEST(Parallel, RanksOfAnAttentionAddUp) {
  Bench bench;
  const Tensor x = bench.Input(24);
  const AttentionConfig config{.hidden_size = 24,
                               .num_heads = 8,
                               .num_kv_heads = 2,
                               .head_dim = 6,
                               .scale = 0.4f,
                               .qkv_bias = true,
                               .output_bias = true};
  RopeSpec spec;
  spec.theta = 100;
  spec.rotary_dim = 6;
  const Result<Rope> rope = Rope::Make(spec, kTokens, bench.ops());
  ASSERT_TRUE(rope.ok());
  std::vector<float> expected;
  for (const int size : {1, 2, 4, 8}) {
    std::vector<float> sum;
    for (int rank = 0; rank < size; ++rank) {
      WeightLoad load = bench.Load({size, rank});
      const Attention layer(Builder(load) / "self_attn", config, &*rope,
                            {.qk_norm = NormConfig{.eps = 1e-5f}});
      ASSERT_TRUE(load.status.ok()) << load.status.ToString();
      EXPECT_EQ(load.spec.cache.layers.front().num_heads, 8 / size);
      EXPECT_EQ(load.spec.cache.layers.front().num_kv_heads, size >= 2 ? 1 : 2);
      Add(sum, bench.Run(layer, load.spec.cache, x, 24));
    }
    if (size == 1) expected = sum;
    ExpectNear(sum, expected);
  }
}

// Each rank keeps the latents of all positions, or the keys and values of its own heads.
TEST(Parallel, RanksOfMlaAddUpInEveryForm) {
  Bench bench;
  const Tensor x = bench.Input(24);
  MlaConfig config{.hidden_size = 24,
                   .num_heads = 8,
                   .q_lora_rank = 10,
                   .kv_lora_rank = 12,
                   .rope_dim = 6,
                   .nope_dim = 5,
                   .value_dim = 7,
                   .scale = 0.4f,
                   .bias = true};
  RopeSpec spec;
  spec.theta = 100;
  spec.rotary_dim = 6;
  spec.style = RopeStyle::kInterleaved;
  const Result<Rope> rope = Rope::Make(spec, kTokens, bench.ops());
  ASSERT_TRUE(rope.ok());
  for (const int q_lora_rank : {10, 0}) {
    config.q_lora_rank = q_lora_rank;
    std::vector<float> expected;
    for (const MlaForm form :
         {MlaForm::kStandard, MlaForm::kLatent, MlaForm::kAbsorbed, MlaForm::kAuto}) {
      config.form = form;
      for (const int size : {1, 2, 8}) {
        std::vector<float> sum;
        for (int rank = 0; rank < size; ++rank) {
          WeightLoad load = bench.Load({size, rank});
          const MlaAttention layer(Builder(load) / "self_attn", config, &*rope);
          ASSERT_TRUE(load.status.ok()) << load.status.ToString();
          const KvLayerSpec& cache = load.spec.cache.layers.front();
          EXPECT_EQ(cache.num_heads, 8 / size);
          EXPECT_EQ(cache.num_kv_heads * (cache.head_dim + cache.StoredValueDim()),
                    form == MlaForm::kStandard ? 8 / size * (6 + 5 + 7) : 6 + 12);
          Add(sum, bench.Run(layer, load.spec.cache, x, 24));
        }
        if (expected.empty()) expected = sum;
        ExpectNear(sum, expected);
      }
    }
  }
}

TEST(Parallel, KvHeadsReplicateToNeighbours) {
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ((ParallelContext{6, rank}.KvHeads(3)), (IndexRange{rank / 2, rank / 2 + 1}));
    EXPECT_EQ((ParallelContext{6, rank}.KvHeads(12)), (IndexRange{rank * 2, rank * 2 + 2}));
  }
  EXPECT_FALSE((ParallelContext{6, 0}.DividesKvHeads(4)));
  EXPECT_FALSE((ParallelContext{4, 0}.DividesKvHeads(6)));
  EXPECT_TRUE((ParallelContext{4, 0}.DividesKvHeads(1)));
}

TEST(Parallel, RefusesUnevenDivisionsWithNumbers) {
  Bench bench;
  WeightLoad load = bench.Load({4, 0});
  Mlp(Builder(load) / "mlp", {16, 26, Activation::kSilu, false});
  EXPECT_EQ(load.status.message(), "mlp: intermediate_size 26 cannot be divided among 4 ranks");
  for (const bool shared : {false, true}) {
    WeightLoad experts = bench.Load({4, 0});
    MoeShape shape = {.hidden_size = 16, .intermediate_size = 8, .router = {}};
    shape.router.num_experts = 4;
    (shared ? shape.shared_intermediate_size : shape.intermediate_size) = 26;
    Moe(Builder(experts) / "moe", shape);
    EXPECT_EQ(experts.status.message(),
              shared ? "moe: intermediate_size of shared experts 26 cannot be divided among 4 ranks"
                     : "moe: intermediate_size of experts 26 cannot be divided among 4 ranks");
  }
  WeightLoad heads = bench.Load({4, 0});
  Attention(Builder(heads) / "attn",
            {.hidden_size = 16, .num_heads = 6, .num_kv_heads = 3, .head_dim = 4, .scale = 1},
            nullptr);
  EXPECT_EQ(heads.status.message(), "attn: 6 heads and 3 KV heads cannot be divided among 4 ranks");
}

}  // namespace
}  // namespace tokamak::nn
