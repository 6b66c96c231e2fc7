#include "executor/in_process.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak {
namespace {

std::unique_ptr<Executor> MakeToyExecutor(int depth) {
  std::unique_ptr<Ops> ops = *MakeCpuOps({.threads = 1});
  std::unique_ptr<const Model> model = testing::MakeToyModel(*ops);
  auto executor = MakeInProcessExecutor(
      std::move(ops), std::move(model),
      {.max_seqs = 3, .max_step_tokens = 32, .max_context = 64, .depth = depth},
      {.arena_bytes = 8 << 20, .num_device_blocks = 20, .num_host_blocks = 4});
  CHECK_MSG(executor.ok(), executor.status().ToString());
  return *std::move(executor);
}

// Greedy tokens of one sequence. Submits each step as early as the depth allows.
std::vector<TokenId> Generate(Executor& executor, int count) {
  std::vector<TokenId> tokens;
  std::deque<uint64_t> in_flight;
  const auto wait = [&] {
    const Result<StepOutput> output = executor.Wait(in_flight.front());
    CHECK_MSG(output.ok(), output.status().ToString());
    EXPECT_EQ(output->number, in_flight.front());
    in_flight.pop_front();
    tokens.push_back(output->rows[0].tokens[0]);
  };
  for (int i = 0; i < count; ++i) {
    StepInput step{.number = static_cast<uint64_t>(i),
                   .rows = {{.slot = 2, .num_tokens = 1, .sample = true}}};
    if (i == 0) {
      step.admit = {{.slot = 2,
                     .tokens = {5, 9, 40, 3},
                     .num_prompt_tokens = 4,
                     .sampling = {.temperature = 0, .frequency_penalty = 1}}};
      step.append = {{.slot = 2, .group = 0, .blocks = {7, 3, 11, 0}},
                     {.slot = 2, .group = 1, .blocks = {8, 4, 12, 1}}};
      step.rows[0].num_tokens = 4;
    }
    EXPECT_TRUE(executor.Submit(std::move(step)).ok());
    EXPECT_TRUE(executor.Sample(static_cast<uint64_t>(i)).ok());
    in_flight.push_back(static_cast<uint64_t>(i));
    if (in_flight.size() == static_cast<size_t>(executor.limits().depth)) wait();
  }
  while (!in_flight.empty()) wait();
  return tokens;
}

TEST(InProcessExecutor, ReportsItsLimits) {
  const auto executor = MakeToyExecutor(4);
  const ExecutorLimits& limits = executor->limits();
  EXPECT_EQ(limits.depth, 4);
  EXPECT_EQ(limits.max_seqs, 3);
  EXPECT_EQ(limits.max_step_tokens, 32);
  EXPECT_EQ(limits.max_context, 64);
  EXPECT_EQ(limits.vocab_size, 96);
  EXPECT_EQ(limits.cache.num_device_blocks, 20);
  EXPECT_EQ(limits.cache.num_host_blocks, 4);
  ASSERT_EQ(limits.cache.groups.size(), 2u);
  EXPECT_EQ(limits.cache.groups[1].kind, CacheGroupKind::kWindow);
}

TEST(InProcessExecutor, ReportsTheRowsOfImagesThatItTakes) {
  std::unique_ptr<Ops> ops = *MakeCpuOps({.threads = 1});
  std::unique_ptr<const Model> model = testing::MakeToyModel(*ops, {.sees = true});
  const auto executor = MakeInProcessExecutor(
      std::move(ops), std::move(model),
      {.max_seqs = 3, .max_context = 64, .max_encoder_rows = 40, .max_step_image_rows = 30},
      {.arena_bytes = 8 << 20, .num_device_blocks = 20});
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_EQ((*executor)->limits().max_encoder_rows, 40);
  EXPECT_EQ((*executor)->limits().max_step_image_rows, 30);
}

TEST(InProcessExecutor, OverlapChangesNoToken) {
  const std::vector<TokenId> expected = Generate(*MakeToyExecutor(1), 40);
  EXPECT_EQ(expected.size(), 40u);
  for (const int depth : {2, 4}) {
    const auto executor = MakeToyExecutor(depth);
    EXPECT_EQ(Generate(*executor, 40), expected) << "depth " << depth;
    ASSERT_TRUE(executor->Reset().ok());
    EXPECT_EQ(Generate(*executor, 40), expected) << "depth " << depth << " after Reset";
  }
}

TEST(InProcessExecutor, AnErrorStaysUntilReset) {
  const auto executor = MakeToyExecutor(2);
  EXPECT_FALSE(executor->Submit({.number = 3}).ok());
  EXPECT_FALSE(executor->Submit({.number = 0}).ok());
  ASSERT_TRUE(executor->Reset().ok());
  EXPECT_TRUE(executor->Submit({.number = 0}).ok());
}

}  // namespace
}  // namespace tokamak
