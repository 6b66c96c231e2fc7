#include "executor/driver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/testing/fake_rank.h"

namespace tokamak {
namespace {

struct Fixture {
  explicit Fixture(int32_t size) {
    auto group = MakeThreadGroup({.size = size, .timeout = std::chrono::seconds(5)});
    std::vector<Rank> ranks;
    for (auto& member : *group) {
      std::shared_ptr<Communicator> communicator = std::move(member);
      auto rank = std::make_unique<FakeRank>(communicator);
      fakes.push_back(rank.get());
      ranks.push_back({std::move(rank), communicator});
    }
    auto made = MakeDriverExecutor(std::move(ranks));
    EXPECT_TRUE(made.ok());
    driver = *std::move(made);
  }
  Result<StepOutput> Step(uint64_t number) {
    RETURN_IF_ERROR(driver->Submit({.number = number}));
    RETURN_IF_ERROR(driver->Sample(number));
    return driver->Wait(number);
  }

  std::vector<FakeRank*> fakes;
  std::unique_ptr<Executor> driver;
};

TEST(DriverExecutor, GivesEveryCallToEveryRankInOrder) {
  Fixture f(3);
  EXPECT_EQ(f.driver->limits().cache.block_bytes, 100 + 101 + 102);
  EXPECT_EQ(f.driver->limits().vocab_size, 1000);
  ASSERT_TRUE(f.driver->Submit({.number = 4}).ok());
  ASSERT_TRUE(f.driver->Sample(4).ok());
  ASSERT_TRUE(f.driver->SampleMasked(4, std::vector<TokenMask>(2)).ok());
  EXPECT_TRUE(f.driver->Done(4));
  const Result<StepOutput> output = f.driver->Wait(4);
  ASSERT_TRUE(output.ok()) << output.status().ToString();
  EXPECT_EQ(output->rows[0].tokens, std::vector<TokenId>{12});
  for (const FakeRank* fake : f.fakes) EXPECT_EQ(fake->calls, "s4S4M4/2D4W4");
  EXPECT_EQ(f.fakes[0]->thread, std::this_thread::get_id());
  EXPECT_NE(f.fakes[1]->thread, f.fakes[2]->thread);
}

// Whichever rank fails, all others end at once, and work again after Reset.
TEST(DriverExecutor, OneRanksErrorIsTheErrorOfTheStep) {
  for (size_t bad = 0; bad < 3; ++bad) {
    Fixture f(3);
    ASSERT_TRUE(f.Step(0).ok());
    f.fakes[bad]->fail_at = 1;
    const Result<StepOutput> output = f.Step(1);
    EXPECT_EQ(output.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(output.status().message().find("the fake has enough"), std::string::npos)
        << output.status().ToString();
    EXPECT_FALSE(f.Step(2).ok());
    ASSERT_TRUE(f.driver->Reset().ok());
    const Result<StepOutput> again = f.Step(5);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again->rows[0].tokens, std::vector<TokenId>{15});
  }
}

TEST(DriverExecutor, RanksThatDrawDifferentTokensAreAnError) {
  Fixture f(2);
  f.fakes[1]->difference = 1;
  const Result<StepOutput> output = f.Step(7);
  EXPECT_EQ(output.status().code(), StatusCode::kInternal);
  EXPECT_EQ(output.status().message(), "rank 1 drew other tokens in step 7 than rank 0");
}

TEST(DriverExecutor, RefusesRanksWithDifferentLimits) {
  auto group = MakeThreadGroup({.size = 2});
  std::vector<Rank> ranks;
  for (auto& member : *group) {
    std::shared_ptr<Communicator> communicator = std::move(member);
    auto rank = std::make_unique<FakeRank>(communicator);
    rank->fixed.max_seqs = communicator->info().rank;
    ranks.push_back({std::move(rank), communicator});
  }
  const auto made = MakeDriverExecutor(std::move(ranks));
  EXPECT_EQ(made.status().message(), "the limits of ranks 0 and 1 differ");
}

}  // namespace
}  // namespace tokamak
