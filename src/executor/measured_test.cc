#include "executor/measured.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "executor/driver.h"
#include "executor/testing/fake_rank.h"

namespace tokamak {
namespace {

// The others wait for the slow one, which waits for nobody.
TEST(DriverExecutor, HasWhatRanksMeasure) {
  for (const size_t slow : {0, 1, 2}) {
    auto group = MakeThreadGroup({.size = 3});
    std::vector<Rank> ranks;
    for (auto& member : *group) {
      const std::shared_ptr<Communicator> communicator = std::move(member);
      auto fake = std::make_unique<FakeRank>(communicator);
      if (ranks.size() == slow) fake->delay = std::chrono::milliseconds(30);
      ranks.push_back({MeasureRank(std::move(fake), communicator), communicator});
    }
    const std::unique_ptr<Executor> driver = *MakeDriverExecutor(std::move(ranks));
    for (uint64_t number = 0; number < 5; ++number) {
      ASSERT_TRUE(driver->Submit({.number = number}).ok());
      ASSERT_TRUE(driver->Sample(number).ok());
      ASSERT_TRUE(driver->Wait(number).ok());
    }
    ASSERT_TRUE(driver->Reset().ok());  // all ranks have ended their steps
    const std::vector<RankStats> stats = driver->rank_stats();
    ASSERT_EQ(stats.size(), 3u);
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(stats[rank].rank, static_cast<int32_t>(rank));
      EXPECT_EQ(stats[rank].stage, 0);
      EXPECT_EQ(stats[rank].steps, 5);
      EXPECT_EQ(stats[rank].received_bytes, int64_t{5 * 2 * sizeof(float)});
      EXPECT_GE(stats[rank].step_seconds, stats[rank].wait_seconds);
      if (rank == slow) continue;
      EXPECT_GT(stats[rank].wait_seconds, 2 * stats[slow].wait_seconds) << slow;
      EXPECT_GT(stats[rank].wait_seconds, stats[rank].step_seconds / 2) << slow;
    }
    EXPECT_GE(stats[slow].step_seconds, 5 * 0.030);  // it sleeps at least that long
    EXPECT_LT(stats[slow].wait_seconds, stats[slow].step_seconds / 2);
  }
}

TEST(RankStats, CountRanksOverAllStages) {
  auto group = MakeThreadGroup({.size = 2, .stages = 2});
  for (int32_t rank = 0; rank < 4; ++rank) {
    const std::shared_ptr<Communicator> communicator =
        std::move((*group)[static_cast<size_t>(rank)]);
    const auto measured = MeasureRank(std::make_unique<FakeRank>(communicator), communicator);
    const RankStats expected{.stage = rank / 2, .rank = rank};
    EXPECT_EQ(measured->rank_stats(), std::vector<RankStats>{expected});
  }
}

}  // namespace
}  // namespace tokamak
