// The ranks' results, put together, equal those of a single rank.
#include "nn/parallel.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/mla.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/testing/bench.h"
#include "ops/testing/on_ranks.h"

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

// Runs `of(bench, load)` on ranks with weights of their own. All must return the same bits.
template <typename Of>
std::vector<float> OnRanks(int32_t size, DType dtype, Of of) {
  const auto results =
      tokamak::testing::OnRanks(size, [&](std::shared_ptr<Communicator> communicator) {
        Bench bench(dtype, std::move(communicator));
        WeightLoad load = bench.Load();
        std::vector<float> result = of(bench, load);
        EXPECT_TRUE(load.status.ok()) << load.status.ToString();
        return result;
      });
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results.front());
  return results.front();
}
template <typename Of>
std::vector<float> OnRanks(int32_t size, Of of) {
  return OnRanks(size, DType::kF32, of);
}

TEST(Parallel, MlpsOfAnyWidthAreDivided) {
  for (const bool plain : {false, true}) {
    const auto run = [&](Bench& bench, WeightLoad& load) {
      const MlpShape shape{16, 26, Activation::kSilu, true};
      const Builder b = Builder(load) / "mlp";
      return plain ? bench.Run(PlainMlp(b, shape), bench.Input(16), 16)
                   : bench.Run(Mlp(b, shape), bench.Input(16), 16);
    };
    const std::vector<float> expected = OnRanks(1, run);
    for (const int size : {2, 3, 4, 26}) ExpectNear(OnRanks(size, run), expected);
  }
}

// Rank r has 3, 3, 2 and 2 blocks of 32 inner activations.
TEST(Parallel, MlpsAreDividedBetweenBlocks) {
  const auto run = [](Bench& bench, WeightLoad& load) {
    const Mlp mlp(Builder(load) / "mlp", {32, 320, Activation::kSilu, true});
    EXPECT_EQ(load.parallel.Shard(320, 32).size(), load.parallel.rank < 2 ? 96 : 64);
    return bench.Run(mlp, bench.Input(32), 32);
  };
  const auto whole = [](Bench& bench, WeightLoad& load) {
    return bench.Run(Mlp(Builder(load) / "mlp", {32, 320, Activation::kSilu, true}),
                     bench.Input(32), 32);
  };
  ExpectNear(OnRanks(4, DType::kQ8_0, run), OnRanks(1, DType::kQ8_0, whole));
}

// The heads of each rank, and the KV heads that they read.
using HeadCounts = std::vector<std::pair<int, int>>;

// 9 heads in 3 groups: groups are divided among up to 3 ranks; then ranks share a KV head.
TEST(Parallel, AttentionIsDividedByKvHeadsThenByHeads) {
  const std::vector<HeadCounts> expected_heads = {
      {{9, 3}},
      {{6, 2}, {3, 1}},
      {{3, 1}, {3, 1}, {3, 1}},
      {{2, 1}, {1, 1}, {3, 1}, {3, 1}},
      {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}};
  for (const bool whole_norm : {false, true}) {
    std::vector<float> expected;
    for (const HeadCounts& heads : expected_heads) {
      const auto run = [&](Bench& bench, WeightLoad& load) {
        const AttentionConfig config{.hidden_size = 24,
                                     .num_heads = 9,
                                     .num_kv_heads = 3,
                                     .head_dim = 6,
                                     .scale = 0.4f,
                                     .qkv_bias = true,
                                     .output_bias = true};
        RopeSpec spec;
        spec.theta = 100;
        spec.rotary_dim = 6;
        const Result<Rope> rope = Rope::Make(spec, kTokens, bench.ops());
        const Attention layer(Builder(load) / "self_attn", config, &*rope,
                              {.qk_norm = NormConfig{.eps = 1e-5f},
                               .whole_qk_norm = whole_norm,
                               .sinks = true,
                               .alibi_bias_max = 8});
        const KvLayerSpec& cache = load.spec.cache.layers.front();
        EXPECT_EQ(std::pair(cache.num_heads, cache.num_kv_heads),
                  heads[static_cast<size_t>(load.parallel.rank)]);
        return bench.Run(layer, load.spec.cache, bench.Input(24), 24);
      };
      const std::vector<float> result = OnRanks(static_cast<int32_t>(heads.size()), run);
      if (expected.empty()) expected = result;
      ExpectNear(result, expected);
    }
  }
}

// Each rank keeps the latents of all positions, or the keys and values of its own heads.
TEST(Parallel, MlaIsDividedByHeadsInEveryForm) {
  MlaConfig config{.hidden_size = 24,
                   .num_heads = 8,
                   .kv_lora_rank = 12,
                   .rope_dim = 6,
                   .nope_dim = 5,
                   .value_dim = 7,
                   .scale = 0.4f,
                   .bias = true};
  for (const int q_lora_rank : {10, 0}) {
    config.q_lora_rank = q_lora_rank;
    std::vector<float> expected;
    for (const MlaForm form :
         {MlaForm::kStandard, MlaForm::kLatent, MlaForm::kAbsorbed, MlaForm::kAuto}) {
      config.form = form;
      for (const int size : {1, 2, 3, 8}) {
        const auto run = [&](Bench& bench, WeightLoad& load) {
          RopeSpec spec;
          spec.theta = 100;
          spec.rotary_dim = 6;
          spec.style = RopeStyle::kInterleaved;
          const Result<Rope> rope = Rope::Make(spec, kTokens, bench.ops());
          const MlaAttention layer(Builder(load) / "self_attn", config, &*rope);
          const KvLayerSpec& cache = load.spec.cache.layers.front();
          const auto heads = static_cast<int32_t>(load.parallel.Shard(8).size());
          EXPECT_EQ(cache.num_heads, heads);
          EXPECT_EQ(cache.num_kv_heads * (cache.head_dim + cache.StoredValueDim()),
                    form == MlaForm::kStandard ? heads * (6 + 5 + 7) : 6 + 12);
          return bench.Run(layer, load.spec.cache, bench.Input(24), 24);
        };
        const std::vector<float> result = OnRanks(size, run);
        if (expected.empty()) expected = result;
        ExpectNear(result, expected);
      }
    }
  }
}

TEST(Parallel, ExpertsAreDividedByTheirInnerWidth) {
  std::vector<float> expected;
  for (const int size : {1, 2, 3, 5}) {
    const auto run = [](Bench& bench, WeightLoad& load) {
      MoeShape shape = {.hidden_size = 16,
                        .intermediate_size = 10,
                        .router = {},
                        .shared_intermediate_size = 7,
                        .shared_gate = true,
                        .expert_bias = true};
      shape.router.num_experts = 4;
      shape.router.top_k = 2;
      return bench.Run(Moe(Builder(load) / "moe", shape), bench.Input(16), 16);
    };
    const std::vector<float> result = OnRanks(size, run);
    if (expected.empty()) expected = result;
    ExpectNear(result, expected);
  }
}

// Equal bits, because each row comes from one rank.
TEST(Parallel, VocabularyShardsGiveTheBitsOfAWholeOne) {
  for (const bool tied : {false, true}) {
    std::vector<float> expected;
    for (const int size : {1, 2, 3, 11}) {
      const auto run = [&](Bench& bench, WeightLoad& load) {
        const Builder b(load);
        const Embedding embedding(b / "embed", 11, 16, tied, 0.5f);
        const OutputLayer output =
            tied ? OutputLayer(b, embedding) : OutputLayer(b / "lm_head", 11, 16);
        EXPECT_EQ(output.has_argmax(bench.ops()), false);  // the reference has none
        return bench.RunVocabulary(embedding, output, {0, 10, 5}, 16);
      };
      const std::vector<float> result = OnRanks(size, run);
      if (expected.empty()) expected = result;
      EXPECT_EQ(result, expected);
    }
  }
}

// Every head belongs to one rank, beside the KV head that it reads, and no cut goes through a unit.
TEST(Parallel, EveryHeadIsOnOneRankWithItsKvHead) {
  int divided = 0;
  for (int64_t kv_heads = 1; kv_heads <= 8; ++kv_heads) {
    for (int64_t group = 1; group <= 8; ++group) {
      for (const int64_t unit : {1, 2, 4}) {
        for (int32_t size = 1; size <= 9; ++size) {
          int64_t next = 0;
          const int64_t heads = kv_heads * group;
          if (heads % unit != 0) continue;
          for (int32_t rank = 0; rank < size; ++rank) {
            const auto shard = ParallelContext{size, rank}.ShardHeads(heads, kv_heads, unit);
            if (!shard) {
              next = -1;
              break;
            }
            EXPECT_EQ(shard->heads.begin, next);
            EXPECT_EQ(shard->heads.begin % unit, 0);
            EXPECT_GT(shard->heads.size(), 0);
            next = shard->heads.end;
            const int64_t local_group = shard->heads.size() / shard->kv_heads.size();
            for (int64_t h = shard->heads.begin; h < shard->heads.end; ++h) {
              EXPECT_EQ(shard->kv_heads.begin + (h - shard->heads.begin) / local_group, h / group);
            }
          }
          if (next < 0) continue;
          ++divided;
          EXPECT_EQ(next, heads) << size << " ranks, " << heads << " heads, " << kv_heads << " KV";
        }
      }
    }
  }
  EXPECT_GT(divided, 500);
}

TEST(Parallel, RefusesDivisionsThatLeaveARankWithoutWork) {
  const auto error = [](int32_t size, DType dtype, auto make) {
    Bench bench(dtype);
    WeightLoad load = bench.Load({size, 0});
    make(Builder(load));
    return std::string(load.status.message());
  };
  const auto mlp = [](const Builder& b) { Mlp(b / "mlp", {256, 1024, Activation::kSilu, false}); };
  EXPECT_EQ(error(5, DType::kQ4_K, mlp),
            "mlp: intermediate_size 1024 cannot be divided among 5 ranks, because it is stored in "
            "blocks of 256; 4 would work");
  EXPECT_EQ(error(4, DType::kQ4_K, mlp), "");
  EXPECT_EQ(error(5, DType::kF32, mlp), "");
  for (const bool shared : {false, true}) {
    const auto moe = [&](const Builder& b) {
      MoeShape shape = {.hidden_size = 16, .intermediate_size = 8, .router = {}};
      shape.router.num_experts = 4;
      shape.shared_intermediate_size = 8;
      (shared ? shape.shared_intermediate_size : shape.intermediate_size) = 3;
      Moe(b / "moe", shape);
    };
    EXPECT_EQ(error(4, DType::kF32, moe),
              shared ? "moe.shared_expert: intermediate_size 3 cannot be divided among 4 ranks; 3 "
                       "would work"
                     : "moe.experts: intermediate_size 3 cannot be divided among 4 ranks; 3 would "
                       "work");
  }
  const auto attention = [](int32_t heads, int32_t kv_heads, int32_t dim) {
    return [=](const Builder& b) {
      Attention(b / "attn",
                {.hidden_size = 256,
                 .num_heads = heads,
                 .num_kv_heads = kv_heads,
                 .head_dim = dim,
                 .scale = 1},
                nullptr);
    };
  };
  EXPECT_EQ(error(4, DType::kF32, attention(6, 3, 4)), "");
  EXPECT_EQ(error(8, DType::kF32, attention(6, 3, 4)),
            "attn: 6 heads and 3 KV heads cannot be divided among 8 ranks; 6 would work");
  EXPECT_EQ(error(2, DType::kQ4_K, attention(8, 4, 64)), "");
  EXPECT_EQ(error(4, DType::kQ4_K, attention(8, 4, 64)),
            "attn: 8 heads and 4 KV heads cannot be divided among 4 ranks, because 4 heads share "
            "blocks of 256 columns; 2 would work");
  const auto mla = [](const Builder& b) {
    MlaAttention(b / "attn",
                 {.hidden_size = 16,
                  .num_heads = 2,
                  .kv_lora_rank = 8,
                  .rope_dim = 4,
                  .nope_dim = 4,
                  .value_dim = 4,
                  .scale = 1},
                 nullptr);
  };
  EXPECT_EQ(error(3, DType::kF32, mla),
            "attn: 2 heads and 2 KV heads cannot be divided among 3 ranks; 2 would work");
  const auto words = [](const Builder& b) { Embedding(b / "embed", 3, 8, false); };
  EXPECT_EQ(error(4, DType::kF32, words),
            "embed: vocab_size 3 cannot be divided among 4 ranks; 3 would work");
}

}  // namespace
}  // namespace tokamak::nn
