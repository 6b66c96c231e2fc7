// Drafts that a draft model proposes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

// With so many steps in flight.
class EngineProposalsTest : public EngineCoreTest, public ::testing::WithParamInterface<int> {
 protected:
  // A step takes 1 ms, and each proposal so long in addition.
  void StartWithDraftModel(double milliseconds) {
    executor_.limits_.depth = GetParam();
    executor_.limits_.max_step_drafts = 8;
    executor_.limits_.cache.num_device_blocks = 64;
    executor_.proposal_seconds = milliseconds / 1000;
    executor_.on_submit = [this, milliseconds](const StepInput& step) {
      double total = 1;
      for (const StepRow& row : step.rows) total += milliseconds * row.num_proposals;
      durations_.emplace_back(static_cast<int64_t>(1000 * total));
    };
    executor_.on_wait = [this] {
      clock_.Advance(durations_.front());
      durations_.pop_front();
    };
    EngineCoreOptions options;
    options.drafts.most = 3;
    options.drafts.from_model = true;
    Start(options);
  }
  // The host takes no time.
  void RunAtOnce() {
    while (core_->HasWork()) core_->Step();
  }

 private:
  std::deque<std::chrono::microseconds> durations_;  // of the steps in flight
};

TEST_P(EngineProposalsTest, AreTheDraftsOfTheNextRow) {
  StartWithDraftModel(0.01);
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
  RunAtOnce();
  const std::vector<TokenId> all = Continue({3, 5}, 40);
  EXPECT_EQ(results_.at({1, 0}).tokens, all);
  size_t drawn = 0;
  int32_t proposed = 0;
  for (const StepInput& step : executor_.steps) {
    ASSERT_EQ(step.rows.size(), 1u);
    const std::vector<TokenId>& drafts = step.rows[0].drafts;
    EXPECT_LE(static_cast<int32_t>(drafts.size()), proposed);
    EXPECT_TRUE(std::equal(drafts.begin(), drafts.end(), all.begin() + drawn));
    // None is requested in vain.
    EXPECT_EQ(drafts.empty(), proposed == 0);
    drawn += drafts.size() + 1;
    proposed = step.rows[0].num_proposals;
    // Nothing is proposed behind the answer's end.
    if (proposed > 0) {
      EXPECT_LT(drawn + static_cast<size_t>(proposed), all.size());
    }
  }
  EXPECT_EQ(drawn, 40u);
  EXPECT_LT(executor_.steps.size(), 25u);
  const EngineStats stats = core_->stats(clock_.Now());
  EXPECT_GT(stats.drafts, 0);
  EXPECT_EQ(stats.accepted_drafts, stats.drafts);
}

TEST_P(EngineProposalsTest, AreNotRequestedFromASlowDraftModel) {
  StartWithDraftModel(3);
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
  RunAtOnce();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({3, 5}, 40));
  const auto proposing =
      std::count_if(executor_.steps.begin(), executor_.steps.end(),
                    [](const StepInput& step) { return step.rows[0].num_proposals > 0; });
  EXPECT_GT(proposing, 0);  // the step that shows how long it takes
  EXPECT_LT(proposing, 4);
}

// Two that draft and one that does not, which has a row in every step.
TEST_P(EngineProposalsTest, AreForRowsOfOneStepWhileOthersGoOn) {
  StartWithDraftModel(0.01);
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 30)).ok());
  ASSERT_TRUE(core_->Submit(Make(2, {3, 6}, 30)).ok());
  Arrival third = Make(3, {3, 7}, 30);
  third.speculate = false;
  ASSERT_TRUE(core_->Submit(std::move(third)).ok());
  RunAtOnce();
  for (RequestId id = 1; id <= 3; ++id) {
    EXPECT_EQ(results_.at({id, 0}).tokens, Continue({3, static_cast<TokenId>(id) + 4}, 30));
  }
  int32_t steps_of_third = 0, proposing = 0, last = -GetParam();
  for (const StepInput& step : executor_.steps) {
    const auto wanting = std::count_if(step.rows.begin(), step.rows.end(),
                                       [](const StepRow& row) { return row.num_proposals > 0; });
    steps_of_third += std::count_if(step.rows.begin(), step.rows.end(),
                                    [](const StepRow& row) { return row.slot == 2; });
    if (wanting == 0) continue;
    EXPECT_GE(static_cast<int32_t>(step.number) - last, steps_of_third < 30 ? GetParam() : 1);
    last = static_cast<int32_t>(step.number);
    proposing += wanting > 1 ? 1 : 0;
  }
  EXPECT_EQ(proposing > 2, GetParam() < 4);  // three drafts cannot make up for three missed steps
  EXPECT_EQ(steps_of_third, 30);
  EXPECT_LT(executor_.steps.size(), 36u);
}

TEST_P(EngineProposalsTest, AreNotMoreThanWereRequested) {
  StartWithDraftModel(0.01);
  executor_.change_row = [](RowOutput* row) { row->proposals.resize(4); };
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).error.message(),
            "executor: step 0 row 0 has 4 proposals, expected at most 0");
}

TEST_P(EngineProposalsTest, TakeATimeThatCanBe) {
  for (const double seconds : {-1.0, std::nan(""), HUGE_VAL}) {
    StartWithDraftModel(0.01);
    executor_.proposal_seconds = seconds;
    ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
    RunAll();
    const Status error = std::exchange(results_, {}).at({1, 0}).error;
    EXPECT_NE(error.message().find("says that its proposals took"), std::string_view::npos)
        << seconds << ": " << error.ToString();
    EXPECT_TRUE(executor_.Reset().ok());  // its steps begin with 0 again
  }
}

TEST_P(EngineProposalsTest, CountAsNoLongerThanTheirStep) {
  StartWithDraftModel(0.01);
  executor_.proposal_seconds = 1e300;
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({3, 5}, 40));
  // With four steps in flight even short proposals cannot make up for the steps missed.
  EXPECT_EQ(core_->stats(clock_.Now()).drafts > 0, GetParam() < 4);
}

INSTANTIATE_TEST_SUITE_P(Depths, EngineProposalsTest, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace tokamak
