// How many graphs a runner captures at the start, for each takes time and memory; and which steps
// run as graphs.
#include "runner/graph_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/graph_batch.h"
#include "runner/runner.h"
#include "runner/testing/queued_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

constexpr size_t kMostGraphs = 45;

TEST(GraphRunner, TheSizesAreFewAndLeaveLittlePadding) {
  const auto ops = MakeQueuedOps(*MakeCpuOps({.threads = 1}), 1);
  for (int32_t max_tokens = 1; max_tokens <= 1100; ++max_tokens) {
    const auto runner = GraphRunner::Make(CudaGraphs::kOn, *ops, max_tokens);
    ASSERT_TRUE(runner.ok());
    const std::vector<int32_t> sizes(runner->capture_sizes().begin(),
                                     runner->capture_sizes().end());
    ASSERT_LE(sizes.size(), kMostGraphs) << max_tokens;
    EXPECT_EQ(sizes.front(), 1);
    EXPECT_EQ(sizes.back(), std::min(max_tokens, 512));
    for (size_t i = 1; i < sizes.size(); ++i) {
      EXPECT_LT(sizes[i - 1], sizes[i]);
      // From 16 tokens on, less than a quarter of what is computed is padding.
      if (sizes[i - 1] >= 16) {
        EXPECT_LE(4 * (sizes[i] - sizes[i - 1]), sizes[i - 1]) << max_tokens;
      }
    }
  }
}

// Runs the steps of one runner and counts the graphs that it launches.
class CountedRunner {
 public:
  CountedRunner() {
    auto runner = Runner::Create(*model_, *ops_,
                                 {.max_seqs = 3,
                                  .max_step_tokens = 40,
                                  .max_step_drafts = 20,
                                  .max_context = kBlocks * 16,
                                  .cuda_graphs = CudaGraphs::kOn},
                                 {.arena_bytes = 4 << 20, .num_device_blocks = 6 * kBlocks});
    CHECK_MSG(runner.ok(), runner.status().ToString());
    runner_ = *std::move(runner);
  }

  // Adds a sequence with a prompt of three tokens, and the row for it.
  void Admit(SequenceSlotId slot) {
    step_.admit.push_back({.slot = slot,
                           .tokens = {5, 6, 7},
                           .num_prompt_tokens = 3,
                           .sampling = {.temperature = 1, .seed = 1}});
    for (int32_t group = 0; group < 2; ++group) {
      AppendBlocks append{.slot = slot, .group = group};
      for (int32_t i = 0; i < kBlocks; ++i) {
        append.blocks.push_back((2 * slot + group) * kBlocks + i);
      }
      step_.append.push_back(std::move(append));
    }
    step_.rows.push_back({.slot = slot, .num_tokens = 3, .sample = true});
  }
  void AddRow(SequenceSlotId slot, int32_t num_drafts) {
    step_.rows.push_back({.slot = slot,
                          .num_tokens = 1 + num_drafts,
                          .sample = true,
                          .drafts = std::vector<TokenId>(static_cast<size_t>(num_drafts), 9)});
  }
  // Runs the step with the rows added so far. Returns how many graphs it launched.
  int Run() {
    const int before = launches_;
    const uint64_t number = step_.number;
    CHECK(runner_->Submit(std::move(step_)).ok() && runner_->Sample(number).ok());
    CHECK(runner_->Wait(number).ok());
    step_ = {.number = number + 1};
    return launches_ - before;
  }

 private:
  static constexpr int32_t kBlocks = 8;  // of a sequence, in each group

  int launches_ = 0;
  std::unique_ptr<Ops> ops_ =
      MakeQueuedOps(*MakeCpuOps({.threads = 1}), 1, {.on_launch = [this] { ++launches_; }});
  std::unique_ptr<Model> model_ = MakeToyModel(*ops_);
  std::unique_ptr<Runner> runner_;
  StepInput step_;
};

TEST(GraphRunner, ADecodeStepIsOneGraphWithDraftsToo) {
  CountedRunner runner;
  runner.Admit(0);
  runner.Admit(1);
  EXPECT_EQ(runner.Run(), 0);  // prompts
  runner.AddRow(0, 0);
  runner.AddRow(1, 0);
  EXPECT_EQ(runner.Run(), 1);
  runner.AddRow(0, 2);
  runner.AddRow(1, 0);
  EXPECT_EQ(runner.Run(), 1);
  runner.AddRow(0, kMaxGraphQueries - 1);
  runner.AddRow(1, 4);  // more tokens than the runner has sequences
  EXPECT_EQ(runner.Run(), 1);
  runner.AddRow(0, kMaxGraphQueries);
  EXPECT_EQ(runner.Run(), 0);
  runner.AddRow(0, 2);
  runner.Admit(2);
  EXPECT_EQ(runner.Run(), 0);
}

}  // namespace
}  // namespace tokamak::testing
