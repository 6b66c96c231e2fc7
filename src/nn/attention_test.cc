#include "nn/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/testing/bench.h"

namespace tokamak::nn {
namespace {

using testing::Bench;
using testing::kTokens;

constexpr int64_t kHidden = 24;

AttentionConfig Config() {
  return {.hidden_size = kHidden, .num_heads = 4, .num_kv_heads = 2, .head_dim = 6, .scale = 0.4f};
}

std::vector<float> Attend(Bench& bench, const AttentionConfig& config, Tensor x,
                          const Rope* rope = nullptr, const AttentionExtras& extras = {}) {
  WeightLoad load = bench.Load({});
  const Attention layer(Builder(load) / "self_attn", config, rope, extras);
  CHECK_MSG(load.status.ok(), load.status.ToString());
  return bench.Run(layer, load.spec.cache, x, kHidden);
}

std::vector<float> Row(const std::vector<float>& values, int64_t t) {
  return {values.begin() + t * kHidden, values.begin() + (t + 1) * kHidden};
}

// Returns for each of the kTokens rows whether it changes with the first token.
std::vector<bool> SeesTheFirstToken(int32_t window) {
  Bench bench;
  AttentionConfig config = Config();
  config.window = window;
  Tensor x = bench.Input(kHidden);
  const std::vector<float> before = Attend(bench, config, x);
  x.Row<float>(0)[3] += 1;
  const std::vector<float> after = Attend(bench, config, x);
  std::vector<bool> changed;
  for (int64_t t = 0; t < kTokens; ++t) changed.push_back(Row(before, t) != Row(after, t));
  return changed;
}

TEST(Attention, AWindowCountsTheTokenItself) {
  EXPECT_EQ(SeesTheFirstToken(0), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(SeesTheFirstToken(1), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(SeesTheFirstToken(2), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(SeesTheFirstToken(3), (std::vector<bool>{true, true, true}));
}

TEST(Attention, LayersWithTheSameWindowAndShapeShareACacheGroup) {
  Bench bench;
  WeightLoad load = bench.Load({});
  AttentionConfig config = Config();
  for (const int32_t window : {0, 8, 0, 16, 8}) {
    config.window = window;
    Attention(Builder(load) / "self_attn", config, nullptr);
  }
  config.num_kv_heads = 4;
  Attention(Builder(load) / "self_attn", config, nullptr);
  ASSERT_TRUE(load.status.ok());
  ASSERT_EQ(load.spec.cache.groups.size(), 4u);
  EXPECT_EQ(load.spec.cache.groups[0].kind, CacheGroupKind::kFull);
  EXPECT_EQ(load.spec.cache.groups[1].kind, CacheGroupKind::kWindow);
  EXPECT_EQ(load.spec.cache.groups[2].window, 16);
  std::vector<int32_t> groups;
  for (const KvLayerSpec& layer : load.spec.cache.layers) groups.push_back(layer.group);
  EXPECT_EQ(groups, (std::vector<int32_t>{0, 1, 0, 2, 1, 3}));
}

TEST(Attention, EveryOptionChangesTheOutput) {
  Bench bench;
  const Tensor x = bench.Input(kHidden);
  const std::vector<float> plain = Attend(bench, Config(), x);
  EXPECT_EQ(Attend(bench, Config(), x), plain);

  AttentionConfig config = Config();
  config.scale = 0.5f;
  EXPECT_NE(Attend(bench, config, x), plain);
  config = Config();
  config.qkv_bias = true;
  EXPECT_NE(Attend(bench, config, x), plain);
  config = Config();
  config.output_bias = true;
  EXPECT_NE(Attend(bench, config, x), plain);
  const auto attend_normed = [&](float eps) {
    return Attend(bench, Config(), x, nullptr, {.qk_norm = NormConfig{.eps = eps}});
  };
  EXPECT_NE(attend_normed(1e-6f), plain);
  EXPECT_NE(attend_normed(1e-1f), attend_normed(1e-6f));

  RopeSpec spec;
  spec.theta = 100;
  spec.rotary_dim = 4;  // of 6 dimensions
  const Result<Rope> rope = Rope::Make(spec, kTokens, bench.ops());
  ASSERT_TRUE(rope.ok());
  const std::vector<float> rotated = Attend(bench, Config(), x, &*rope);
  EXPECT_EQ(Row(rotated, 0), Row(plain, 0));  // position 0 does not rotate
  EXPECT_NE(Row(rotated, 1), Row(plain, 1));
}

}  // namespace
}  // namespace tokamak::nn
