#include "models/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/staged_model.h"

namespace tokamak {
namespace {

std::vector<int64_t> Ends(const LayerCosts& costs, int32_t stages) {
  const auto ranges = DivideLayers(costs, stages);
  EXPECT_TRUE(ranges.ok()) << ranges.status().ToString();
  std::vector<int64_t> ends;
  int64_t begin = 0;
  for (const IndexRange& range : *ranges) {
    EXPECT_EQ(range.begin, begin);
    EXPECT_GT(range.end, begin);
    ends.push_back(begin = range.end);
  }
  return ends;
}

TEST(Stages, AreBalancedByCost) {
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(Ends({.layers = {5}}, 1), Ints{1});
  EXPECT_EQ(Ends({.layers = {5, 5, 5, 5}}, 2), (Ints{2, 4}));
  EXPECT_EQ(Ends({.layers = {5, 5, 5, 5}}, 4), (Ints{1, 2, 3, 4}));
  // The output layer costs as much as two layers.
  EXPECT_EQ(Ends({.layers = {5, 5, 5, 5}, .output = 10}, 2), (Ints{3, 4}));
  EXPECT_EQ(Ends({.layers = Ints(30, 4), .output = 28}, 2), (Ints{18, 30}));
  // Dense layers before layers of experts.
  EXPECT_EQ(Ends({.layers = {1, 1, 1, 8, 8, 8}}, 3), (Ints{4, 5, 6}));
  // Nothing is better than 10 for the most expensive one; the others are divided evenly.
  EXPECT_EQ(Ends({.layers = {2, 2, 2, 2, 10}}, 3), (Ints{2, 4, 5}));
  EXPECT_EQ(Ends({.layers = {1, 1, 1, 1}, .least_first = 3}, 2), (Ints{3, 4}));
}

// Against all divisions.
TEST(Stages, CostAsLittleAsTheyCan) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    LayerCosts costs{.layers = {}, .output = static_cast<int64_t>(random() % 20)};
    for (uint32_t i = 0; i < 7; ++i) costs.layers.push_back(1 + random() % 20);
    const auto most = [&](size_t a, size_t b) {  // of three stages
      int64_t sums[3] = {0, 0, costs.output};
      for (size_t i = 0; i < 7; ++i) sums[i < a ? 0 : i < b ? 1 : 2] += costs.layers[i];
      return *std::max_element(sums, sums + 3);
    };
    int64_t best = INT64_MAX;
    for (size_t a = 1; a < 6; ++a) {
      for (size_t b = a + 1; b < 7; ++b) best = std::min(best, most(a, b));
    }
    const std::vector<int64_t> ends = Ends(costs, 3);
    EXPECT_EQ(most(static_cast<size_t>(ends[0]), static_cast<size_t>(ends[1])), best);
  }
}

TEST(Stages, TooManyAreRefusedWithTheNumberThatFits) {
  const auto error = [](const LayerCosts& costs, int32_t stages) {
    return DivideLayers(costs, stages).status().ToString();
  };
  EXPECT_NE(error({.layers = {1, 1, 1}}, 4)
                .find("pipeline_parallel: the model's 3 layers cannot be divided among 4 stages; 3 "
                      "would work"),
            std::string::npos);
  EXPECT_NE(error({.layers = {1, 1, 1, 1}, .least_first = 3}, 3)
                .find("4 layers cannot be divided among 3 stages, because the first 3 must be on "
                      "the first; 2 would work"),
            std::string::npos);
}

// A stage has its own layers, and the whole model's cache groups; both ends have a tied embedding.
TEST(Stages, HaveTheirLayersOnly) {
  const std::string path = testing::TinyModelPath("hf/gemma3_256");  // tied; two windows, then none
  const std::string backend = testing::PreciseBackendNames().back();
  const auto whole = testing::LoadOrDie(path, *testing::MakeBackend(backend));
  const auto stages = testing::LoadStages(path, backend, 2);
  const ModelSpec &all = whole->spec(), &first = stages->stage(0).spec(),
                  &last = stages->stage(1).spec();
  EXPECT_TRUE(all.stage.first() && all.stage.last());
  EXPECT_TRUE(first.stage.first() && !first.stage.last());
  EXPECT_TRUE(!last.stage.first() && last.stage.last());
  EXPECT_EQ(first.stage.end_layer, last.stage.first_layer);
  EXPECT_EQ(last.stage.end_layer, all.stage.end_layer);
  EXPECT_EQ(first.cache.groups.size(), 2u);
  EXPECT_EQ(last.cache.groups.size(), 2u);
  for (const ModelSpec* spec : {&first, &last}) {
    ASSERT_EQ(std::ssize(spec->cache.layers), spec->stage.end_layer - spec->stage.first_layer);
    for (int32_t i = spec->stage.first_layer; i < spec->stage.end_layer; ++i) {
      const auto own = static_cast<size_t>(i - spec->stage.first_layer);
      EXPECT_EQ(spec->cache.layers[own].group, all.cache.layers[static_cast<size_t>(i)].group);
    }
  }
  // In bf16, with a little padding.
  const int64_t embedding = first.weight_bytes + last.weight_bytes - all.weight_bytes;
  const int64_t least = int64_t{all.vocab_size} * all.hidden_size * 2;
  EXPECT_GE(embedding, least);
  EXPECT_LT(embedding, least * 11 / 10);
}

}  // namespace
}  // namespace tokamak
