#include "engine/cost_model.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/lru_heap.h"

namespace tokamak {
namespace {

StepCost Cost(int64_t tokens, int64_t keys) { return {.tokens = tokens, .keys = keys}; }
double Truth(const StepCost& c) {
  return 2e-3 + 5e-5 * static_cast<double>(c.tokens) + 3e-8 * static_cast<double>(c.keys);
}

TEST(CostModel, LearnsALinearMachine) {
  CostModel model;
  std::mt19937 rng(1);
  for (int i = 0; i < 300; ++i) {
    const StepCost c = Cost(rng() % 500 + 1, rng() % 500000);
    model.Observe(c, Truth(c));
  }
  for (const StepCost& c : {Cost(1, 100), Cost(64, 40000), Cost(512, 400000)}) {
    EXPECT_NEAR(model.Predict(c), Truth(c), 0.05 * Truth(c));
  }
}

TEST(CostModel, KnowsOnlyWorkOfAKindThatItHasSeen) {
  CostModel model;
  EXPECT_FALSE(model.Knows(Cost(1, 1)));
  model.Observe(Cost(1, 1), 1e-3);
  EXPECT_TRUE(model.Knows(Cost(100, 1000)));
  StepCost images = Cost(100, 1000);
  images.image_rows = 50;
  StepCost proposals = Cost(1, 1);
  proposals.proposals = 2;
  EXPECT_FALSE(model.Knows(images) || model.Knows(proposals));
  model.Observe(images, 0.5);
  EXPECT_TRUE(model.Knows(images));
  EXPECT_FALSE(model.Knows(proposals));
}

TEST(CostModel, LearnsWhatProposalsTake) {
  CostModel model;
  std::mt19937 rng(1);
  for (int i = 0; i < 300; ++i) {
    StepCost c = Cost(rng() % 8 + 1, rng() % 5000);
    c.proposals = rng() % 5;
    const double proposing = 4e-4 * static_cast<double>(c.proposals);
    model.Observe(c, Truth(c) + proposing, proposing);
  }
  StepCost c = Cost(4, 2000);
  const double without = model.Predict(c);
  c.proposals = 3;
  EXPECT_NEAR(model.Predict(c) - without, 3 * 4e-4, 1e-5);
  EXPECT_NEAR(without, Truth(Cost(4, 2000)), 0.05 * without);
}

TEST(CostModel, FollowsAMachineThatSlowsDown) {
  CostModel model;
  std::mt19937 rng(1);
  const StepCost probe = Cost(100, 10000);
  for (int i = 0; i < 600; ++i) {
    const StepCost c = Cost(rng() % 500 + 1, rng() % 500000);
    model.Observe(c, Truth(c) * (i < 300 ? 1 : 3));
  }
  EXPECT_NEAR(model.Predict(probe), 3 * Truth(probe), 0.2 * Truth(probe));
}

TEST(CostModel, NeverPredictsThatMoreWorkIsFaster) {
  CostModel model;
  std::mt19937 rng(1);
  for (int i = 0; i < 200; ++i) {
    model.Observe(Cost(rng() % 500, rng() % 500000), static_cast<double>(rng() % 1000) * 1e-3);
    EXPECT_LE(model.Predict(Cost(1, 1)), model.Predict(Cost(2, 1)));
    EXPECT_LE(model.Predict(Cost(1, 1)), model.Predict(Cost(1, 1000)));
    EXPECT_GE(model.Predict(Cost(0, 0)), 0);
  }
}

TEST(CostModel, MaxTokensIsTheLargestThatFits) {
  CostModel model;
  std::mt19937 rng(1);
  for (int i = 0; i < 300; ++i) {
    const StepCost c = Cost(rng() % 500 + 1, rng() % 500000);
    model.Observe(c, Truth(c));
  }
  const StepCost base = Cost(8, 4000);
  const int32_t fits = model.MaxTokens(base, 100, 1000, 10e-3);
  ASSERT_GT(fits, 0);
  ASSERT_LT(fits, 1000);
  StepCost with = base;
  with.Add(100, fits);
  EXPECT_LE(model.Predict(with), 10e-3);
  with = base;
  with.Add(100, fits + 1);
  EXPECT_GT(model.Predict(with), 10e-3);
  EXPECT_EQ(model.MaxTokens(base, 100, 5, 1.0), 5);
  EXPECT_EQ(model.MaxTokens(base, 100, 5, 0.0), 0);
}

TEST(CostModel, LearnsWhatImagesTake) {
  CostModel model;
  std::mt19937 rng(1);
  for (int i = 0; i < 300; ++i) {
    StepCost c = Cost(rng() % 500 + 1, rng() % 500000);
    if (i % 10 == 9) c.image_rows = rng() % 600 + 1;
    model.Observe(c, Truth(c) + 2e-4 * static_cast<double>(c.image_rows));
  }
  StepCost c = Cost(64, 40000);
  EXPECT_NEAR(model.Predict(c), Truth(c), 0.05 * Truth(c));
  const double without = model.Predict(c);
  c.image_rows = 100;
  EXPECT_NEAR(model.Predict(c) - without, 20e-3, 2e-3);
}

TEST(LruHeap, AgreesWithSortingUnderRandomChanges) {
  LruHeap heap;
  std::mt19937 rng(7);
  std::vector<uint64_t> stamps(50, 0);  // 0: not in the heap
  uint64_t now = 0;
  for (int i = 0; i < 20000; ++i) {
    const int32_t item = static_cast<int32_t>(rng() % stamps.size());
    if (heap.Contains(item)) {
      heap.Remove(item);
      stamps[item] = 0;
    } else {
      stamps[item] = ++now * 100 + rng() % 100000;
      heap.Push(item, stamps[item]);
    }
    int32_t oldest = -1;
    for (int32_t k = 0; k < static_cast<int32_t>(stamps.size()); ++k) {
      ASSERT_EQ(heap.Contains(k), stamps[k] != 0);
      if (stamps[k] != 0 && (oldest < 0 || stamps[k] < stamps[oldest])) oldest = k;
    }
    ASSERT_EQ(heap.empty(), oldest < 0);
    if (oldest >= 0) {
      ASSERT_EQ(stamps[heap.Top()], stamps[oldest]);
    }
  }
}

}  // namespace
}  // namespace tokamak
