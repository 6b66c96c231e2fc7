// Drafts that a draft model proposes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

class EngineProposalsTest : public EngineCoreTest {
 protected:
  // A step takes 1 ms, and each proposal so long in addition.
  void StartWithDraftModel(double milliseconds) {
    executor_.limits_.max_step_drafts = 8;
    executor_.proposal_seconds = milliseconds / 1000;
    executor_.on_submit = [this, milliseconds](const StepInput& step) {
      double total = 1;
      for (const StepRow& row : step.rows) total += milliseconds * row.num_proposals;
      clock_.Advance(std::chrono::microseconds(static_cast<int64_t>(1000 * total)));
    };
    EngineCoreOptions options;
    options.drafts.most = 3;
    options.drafts.from_model = true;
    Start(options);
  }
};

TEST_F(EngineProposalsTest, AreTheDraftsOfTheNextRow) {
  StartWithDraftModel(0.01);
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
  RunAll();
  const std::vector<TokenId> all = Continue({3, 5}, 40);
  EXPECT_EQ(results_.at({1, 0}).tokens, all);
  size_t drawn = 0;
  int32_t proposed = 0;
  for (const StepInput& step : executor_.steps) {
    ASSERT_EQ(step.rows.size(), 1u);
    const std::vector<TokenId>& drafts = step.rows[0].drafts;
    EXPECT_LE(static_cast<int32_t>(drafts.size()), proposed);
    EXPECT_TRUE(std::equal(drafts.begin(), drafts.end(), all.begin() + drawn));
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

TEST_F(EngineProposalsTest, AreNotRequestedFromASlowDraftModel) {
  StartWithDraftModel(3);
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({3, 5}, 40));
  const auto proposing =
      std::count_if(executor_.steps.begin(), executor_.steps.end(),
                    [](const StepInput& step) { return step.rows[0].num_proposals > 0; });
  EXPECT_GT(proposing, 0);  // the step that shows how long it takes
  EXPECT_LT(proposing, 4);
}

TEST_F(EngineProposalsTest, AreNotMoreThanWereRequested) {
  StartWithDraftModel(0.01);
  executor_.change_row = [](RowOutput* row) { row->proposals.resize(4); };
  ASSERT_TRUE(core_->Submit(Make(1, {3, 5}, 40)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).error.message(),
            "executor: step 0 row 0 has 4 proposals, expected at most 0");
}

}  // namespace
}  // namespace tokamak
