// The stages of a pipeline as ranks of the driver, with a real model: each step gives the bits of a
// single rank.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/driver.h"
#include "executor/in_process.h"
#include "models/registry.h"
#include "ops/cpu/cpu_ops.h"
#include "runner/runner.h"

namespace tokamak {
namespace {

constexpr int32_t kBlockSize = 8, kBlocksPerSlot = 8, kSlots = 4;

struct Layout {
  int32_t ranks = 1;
  int32_t stages = 1;
  int depth = 1;
};

std::unique_ptr<Executor> MakeExecutor(const std::string& path, const Layout& layout) {
  auto group = *MakeThreadGroup(
      {.size = layout.ranks, .stages = layout.stages, .slot_bytes = 4096, .channel_bytes = 4096});
  std::vector<Rank> ranks;
  for (auto& member : group) {
    std::shared_ptr<Communicator> communicator = std::move(member);
    std::unique_ptr<Ops> ops =
        *MakeCpuOps({.threads = 1, .isa = "auto/precise", .communicator = communicator});
    const auto checkpoint = OpenCheckpoint(TOKAMAK_SOURCE_DIR "/tests/golden/" + path);
    auto model = LoadModel(*checkpoint, *ops);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    auto executor = MakeInProcessExecutor(
        std::move(ops), *std::move(model),
        {.max_seqs = kSlots,
         .max_step_tokens = 64,
         .max_step_drafts = 8,
         .max_context = kBlockSize * kBlocksPerSlot,
         .block_size = kBlockSize,
         .depth = layout.depth,
         .expert_loads = true},
        {.arena_bytes = 64 << 20, .num_device_blocks = 2 * kSlots * kBlocksPerSlot});
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    ranks.push_back({*std::move(executor), std::move(communicator)});
  }
  auto driver = MakeDriverExecutor(std::move(ranks));
  EXPECT_TRUE(driver.ok()) << driver.status().ToString();
  return *std::move(driver);
}

// Submits steps as far ahead as the depth allows. Each has a row of one slot; slots take turns.
class Turns {
 public:
  Turns(Executor& executor, int32_t num_slots) : executor_(executor), num_slots_(num_slots) {}

  // Each slot's prompt in two chunks, then steps that draw in all ways.
  std::vector<StepOutput> Steps(int count) {
    for (int i = 0; i < count; ++i) Step(i);
    while (!in_flight_.empty()) Wait();
    return std::move(outputs_);
  }

 private:
  void Step(int i) {
    const int32_t slot = i % num_slots_, turn = i / num_slots_;
    StepInput step{.number = static_cast<uint64_t>(i)};
    StepRow row{.slot = slot, .num_tokens = 1, .sample = true};
    if (turn == 0) {
      Admit(slot, &step);
      row.num_tokens = 3;
      row.sample = false;
    } else if (turn == 1) {
      row.num_tokens = 4 + slot;
    } else {
      row.masked = turn % 3 == 0;
      // No row of the slot may be submitted before these are settled.
      if (turn % 4 == 1 && num_slots_ >= executor_.limits().depth) {
        row.drafts = {7, last_[slot]};
        row.num_tokens = 3;
      }
    }
    step.rows = {row};
    ASSERT_TRUE(executor_.Submit(std::move(step)).ok());
    ASSERT_TRUE(executor_.Sample(static_cast<uint64_t>(i)).ok());
    in_flight_.push_back(static_cast<uint64_t>(i));
    if (row.masked) {
      std::vector<TokenMask> masks;
      for (int32_t draw = 0; draw <= std::ssize(row.drafts); ++draw) {
        const auto words = (static_cast<size_t>(executor_.limits().vocab_size) + 31) / 32;
        masks.push_back({.slot = slot, .draw = draw});
        masks.back().allowed.assign(words, 0x55555555u << (turn % 2));
      }
      ASSERT_TRUE(executor_.SampleMasked(static_cast<uint64_t>(i), std::move(masks)).ok());
    }
    if (std::ssize(in_flight_) == executor_.limits().depth) Wait();
  }
  void Admit(int32_t slot, StepInput* step) {
    AdmitSequence admit{.slot = slot, .num_prompt_tokens = 7 + slot};
    for (int32_t t = 0; t < admit.num_prompt_tokens; ++t)
      admit.tokens.push_back(5 + t * (slot + 3));
    admit.sampling.temperature = slot % 2 == 0 ? 0.0f : 1.0f;
    admit.sampling.seed = 11;
    admit.sampling.logprobs = 2;
    admit.sampling.prompt_logprobs = 1;
    admit.sampling.frequency_penalty = 0.5f;
    step->admit = {admit};
    const auto groups = executor_.limits().cache.groups.size();
    for (size_t g = 0; g < groups; ++g) {
      AppendBlocks append{.slot = slot, .group = static_cast<int32_t>(g)};
      for (int32_t b = 0; b < kBlocksPerSlot; ++b) {
        const int32_t own = slot * kBlocksPerSlot + b;
        append.blocks.push_back(own * static_cast<int32_t>(groups) + static_cast<int32_t>(g));
      }
      step->append.push_back(append);
    }
  }
  void Wait() {
    Result<StepOutput> output = executor_.Wait(in_flight_.front());
    ASSERT_TRUE(output.ok()) << output.status().ToString();
    in_flight_.pop_front();
    const RowOutput& row = output->rows.front();
    if (!row.tokens.empty()) last_[row.slot] = row.tokens.back();
    outputs_.push_back(*std::move(output));
  }

  Executor& executor_;
  const int32_t num_slots_;
  std::deque<uint64_t> in_flight_;
  std::vector<StepOutput> outputs_;
  TokenId last_[kSlots] = {};
};

constexpr const char* kModels[] = {"llama_odd.gguf", "qwen3_moe_odd.gguf", "hf/gemma2_odd"};

void ExpectTheBitsOf(const Layout& one, const Layout& layout) {
  for (const char* path : kModels) {
    for (const int32_t num_slots : {1, 2, 3, kSlots}) {
      const int count = 12 * num_slots;
      const auto single = MakeExecutor(path, one);
      const auto executor = MakeExecutor(path, layout);
      // Drafts depend on the depth.
      if ((num_slots >= layout.depth) != (num_slots >= one.depth)) continue;
      const std::vector<StepOutput> expected = Turns(*single, num_slots).Steps(count);
      const std::vector<StepOutput> steps = Turns(*executor, num_slots).Steps(count);
      ASSERT_EQ(steps.size(), static_cast<size_t>(count));
      for (size_t i = 0; i < steps.size(); ++i) {
        ASSERT_EQ(steps[i], expected[i]) << path << ", " << num_slots << " slots, step " << i;
        EXPECT_EQ(steps[i].expert_loads, expected[i].expert_loads);
      }
      ASSERT_TRUE(executor->Reset().ok());
      EXPECT_EQ(Turns(*executor, num_slots).Steps(count), expected) << "after a reset";
    }
  }
}

TEST(RanksOfAPipeline, GiveTheBitsOfOneRank) {
  ExpectTheBitsOf({.depth = 3}, {.stages = 2, .depth = 3});
  ExpectTheBitsOf({.depth = 4}, {.stages = 3, .depth = 4});
  ExpectTheBitsOf({.depth = 1}, {.stages = 2, .depth = 1});
}

TEST(RanksOfAPipeline, OfTwoRanksEachGiveTheBitsOfTwoRanks) {
  ExpectTheBitsOf({.ranks = 2, .depth = 3}, {.ranks = 2, .stages = 2, .depth = 3});
}

// A step that breaks a rule ends all stages, and they work again after a reset.
TEST(RanksOfAPipeline, AnErrorEndsAllStages) {
  const auto executor = MakeExecutor("llama_odd.gguf", {.stages = 3, .depth = 4});
  const std::vector<StepOutput> expected = Turns(*executor, 2).Steps(20);
  ASSERT_TRUE(executor->Reset().ok());
  EXPECT_FALSE(executor->Submit({.number = 5}).ok());
  EXPECT_FALSE(executor->Wait(0).ok());
  ASSERT_TRUE(executor->Reset().ok());
  EXPECT_EQ(Turns(*executor, 2).Steps(20), expected);
}

}  // namespace
}  // namespace tokamak
