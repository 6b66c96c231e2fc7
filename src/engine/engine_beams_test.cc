// How the engine core treats beam searches. tests/sim checks their answers at every depth.
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

// After a pause two beams compute what they know anew. The windows of both just fit, so neither may
// take blocks for later positions while the other lacks one for the next.
TEST_F(EngineCoreTest, BeamsThatResumeDoNotTakeEachOthersBlocks) {
  executor_.limits_.cache.groups = {{CacheGroupKind::kWindow, 2, 2}};
  executor_.limits_.cache.num_device_blocks = 4;
  executor_.limits_.has_candidates = true;
  std::map<SequenceSlotId, int32_t> num_candidates;
  executor_.on_submit = [&](const StepInput& step) {
    for (const StepRow& row : step.rows) num_candidates[row.slot] = row.num_candidates;
  };
  int num_searched = 0;
  executor_.change_row = [&](RowOutput* row) {
    if (num_candidates[row->slot] == 0) return;
    // The beams part at the first token and stay apart.
    row->candidates = {{10, -1.0f}, {20, num_searched++ == 0 ? -2.0f : -50.0f}};
  };
  EngineCoreOptions options;
  options.prefix_cache = false;
  Start(std::move(options));
  Arrival arrival = Make(1, {1, 2, 3, 4}, 16);
  arrival.sampling.n = 2;
  arrival.sampling.beam_search = {.width = 2};
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  const auto run_until = [&](int count) {
    for (int i = 0; num_searched < count && i < 1000; ++i) core_->Step();
  };
  run_until(1 + 2 * 12);
  core_->Pause(1);
  for (int i = 0; i < 10; ++i) core_->Step();
  core_->Resume(1);
  RunAll();
  std::vector<TokenId> tokens(16, 10);
  EXPECT_EQ((results_[{1, 0}].tokens), tokens) << results_[{1, 0}].error.ToString();
  tokens[0] = 20;
  EXPECT_EQ((results_[{1, 1}].tokens), tokens);
  EXPECT_EQ(executor_.admitted.size(), 2u);
}

// Beside another sequence there is one block left, and three beams need two to part.
TEST_F(EngineCoreTest, BeamsForkTogetherOrNotYet) {
  executor_.limits_.cache.groups = {{CacheGroupKind::kFull, 2}};
  executor_.limits_.cache.num_device_blocks = 12;
  executor_.limits_.has_candidates = true;
  std::map<SequenceSlotId, int32_t> num_candidates;
  executor_.change_row = [&](RowOutput* row) {
    if (num_candidates[row->slot] == 0) return;
    row->candidates = {{10, -1.0f}, {20, -2.0f}, {30, -3.0f}};
  };
  std::vector<size_t> copies;
  executor_.on_submit = [&](const StepInput& step) {
    for (const StepRow& row : step.rows) num_candidates[row.slot] = row.num_candidates;
    if (step.copies.empty()) return;
    copies.push_back(step.copies.size());
    EXPECT_EQ(step.fork.size(), 3u);
  };
  EngineCoreOptions options;
  options.prefix_cache = false;
  Start(std::move(options));
  ASSERT_TRUE(core_->Submit(Make(1, std::vector<TokenId>(17, 5), 3)).ok());
  Arrival arrival = Make(2, {1, 2, 3}, 2);
  arrival.sampling.n = 3;
  arrival.sampling.beam_search = {.width = 3};
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  EXPECT_EQ((results_[{1, 0}].tokens.size()), 3u) << results_[{1, 0}].error.ToString();
  EXPECT_EQ((results_[{2, 0}].tokens.size()), 2u) << results_[{2, 0}].error.ToString();
  EXPECT_EQ(copies, std::vector<size_t>{2});
}

}  // namespace
}  // namespace tokamak
