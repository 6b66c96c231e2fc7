#include "executor/driver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
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

// A stage that may take long for a step. Each draws the step's number.
struct FakeStage final : Executor {
  explicit FakeStage(int32_t stage) {
    fixed.stages = 2;
    fixed.depth = 3;
    fixed.cache.block_bytes = 100 + stage;
  }
  const ExecutorLimits& limits() const override { return fixed; }
  Status Submit(StepInput step) override {
    ++submitted;
    calls += "s" + std::to_string(step.number);
    for (const EncodeImage& image : step.encode) {
      calls += "i" + std::to_string(image.values.size());
    }
    if (step.number == held) released = release.get_future().wait_for(kLong) != kTimeout;
    return Status();
  }
  Status Sample(uint64_t number) override {
    calls += "S" + std::to_string(number);
    return Status();
  }
  Status SampleMasked(uint64_t number, std::vector<TokenMask>) override {
    calls += "M" + std::to_string(number);
    return Status();
  }
  bool Done(uint64_t number) override { return number + lag < submitted; }
  Result<StepOutput> Wait(uint64_t number) override {
    calls += "W" + std::to_string(number);
    RowOutput row;
    row.tokens = {static_cast<TokenId>(number) + difference};
    row.health = health;
    return StepOutput{.number = number, .rows = {row}};
  }
  Status Reset() override { return Status(); }

  static constexpr std::chrono::seconds kLong{20};
  static constexpr std::future_status kTimeout = std::future_status::timeout;
  ExecutorLimits fixed;
  uint64_t submitted = 0;      // steps
  uint64_t lag = 0;            // a step is done once so many later ones were submitted
  uint64_t held = UINT64_MAX;  // a step that takes until `release`
  std::promise<void> release;
  bool released = false;
  RowHealth health = RowHealth::kOk;
  TokenId difference = 0;
  std::string calls;
};

struct StagesFixture {
  StagesFixture() {
    auto group = MakeThreadGroup({.stages = 2, .channel_bytes = 64});
    std::vector<Rank> ranks;
    for (auto& member : *group) {
      auto stage = std::make_unique<FakeStage>(member->info().stage);
      fakes.push_back(stage.get());
      ranks.push_back({std::move(stage), std::move(member)});
    }
    driver = *MakeDriverExecutor(std::move(ranks));
  }
  void Submit(uint64_t number, bool masked = false) {
    StepInput step{.number = number, .encode = {{.id = 1, .values = {1, 2, 3}}}};
    step.rows = {{.num_tokens = 1, .sample = true, .masked = masked}};
    EXPECT_TRUE(driver->Submit(std::move(step)).ok());
    EXPECT_TRUE(driver->Sample(number).ok());
    if (!masked) return;
    EXPECT_TRUE(driver->SampleMasked(number, {}).ok());
  }

  std::vector<FakeStage*> fakes;
  std::unique_ptr<Executor> driver;
};

TEST(DriverOfStages, TakesAStepBackWhileLaterOnesAreComputed) {
  StagesFixture f;
  EXPECT_EQ(f.driver->limits().cache.block_bytes, 201);
  FakeStage& last = *f.fakes[1];
  last.held = 1;
  for (uint64_t number = 0; number < 3; ++number) f.Submit(number);
  const Result<StepOutput> first = f.driver->Wait(0);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->rows[0].tokens, std::vector<TokenId>{0});
  EXPECT_FALSE(f.driver->Done(1));
  last.release.set_value();
  EXPECT_TRUE(f.driver->Wait(1).ok());
  EXPECT_TRUE(last.released);
  EXPECT_TRUE(f.driver->Wait(2).ok());
}

// An asynchronous device has the next step before the one that it computes is waited for.
TEST(DriverOfStages, TheLastStageWaitsForAStepWhenItIsDoneOrNoOtherCallIsLeft) {
  StagesFixture f;
  FakeStage& last = *f.fakes[1];
  last.held = 0;
  last.lag = 1;
  for (uint64_t number = 0; number < 3; ++number) f.Submit(number);
  last.release.set_value();
  for (uint64_t number = 0; number < 3; ++number) EXPECT_TRUE(f.driver->Wait(number).ok());
  EXPECT_EQ(last.calls, "s0i0S0s1i0W0S1s2i0W1S2W2");
}

TEST(DriverOfStages, GivesMasksAndImagesToThoseThatUseThem) {
  StagesFixture f;
  f.Submit(0, /*masked=*/true);
  f.Submit(1);
  EXPECT_TRUE(f.driver->Wait(0).ok());
  EXPECT_TRUE(f.driver->Wait(1).ok());
  EXPECT_EQ(f.fakes[0]->calls, "s0i3S0s1i3S1W0W1");
  EXPECT_EQ(f.fakes[1]->calls, "s0i0S0M0W0s1i0S1W1");
}

TEST(DriverOfStages, TheOutputIsTheLastStages) {
  StagesFixture f;
  f.fakes[1]->health = RowHealth::kNotFinite;
  f.Submit(0);
  const Result<StepOutput> output = f.driver->Wait(0);
  ASSERT_TRUE(output.ok()) << output.status().ToString();
  EXPECT_EQ(output->rows[0].health, RowHealth::kNotFinite);
  f.fakes[1]->difference = 1;
  f.Submit(1);
  EXPECT_EQ(f.driver->Wait(1).status().message(),
            "rank 0 knows other tokens of step 1 than the last stage drew");
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
