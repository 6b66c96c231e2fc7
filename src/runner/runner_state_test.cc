// Models with layers that keep a state per sequence.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/count/count_ops.h"
#include "ops/cpu/cpu_ops.h"
#include "runner/embedding_runner.h"
#include "runner/memory_profile.h"
#include "runner/runner.h"
#include "runner/testing/driver.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

class RunnerState : public ::testing::Test {
 protected:
  std::unique_ptr<Runner> Make(RunnerShape shape) {
    shape.max_context = 200;
    auto runner =
        Runner::Create(*model_, *ops_, shape, {.arena_bytes = 8 << 20, .num_device_blocks = 400});
    CHECK_MSG(runner.ok(), runner.status().ToString());
    return *std::move(runner);
  }
  // The logprobs behind a prompt in slot 0 that is computed in rows of these lengths.
  static TokenLogprobs Draw(Runner& runner, const std::vector<TokenId>& prompt,
                            const std::vector<int32_t>& rows) {
    std::vector<BlockId> blocks(CeilDiv(prompt.size(), 16u));
    std::iota(blocks.begin(), blocks.end(), 0);
    StepInput step{.admit = {{.slot = 0,
                              .tokens = prompt,
                              .num_prompt_tokens = static_cast<int32_t>(prompt.size()),
                              .sampling = {.seed = 5, .logprobs = 3}}}};
    for (const int32_t group : {0, 1}) {
      for (BlockId& block : blocks) block += 30;
      step.append.push_back({.slot = 0, .group = group, .blocks = blocks});
    }
    TokenLogprobs logprobs;
    for (size_t i = 0; i < rows.size(); ++i) {
      step.number = i;
      step.rows = {{.slot = 0, .num_tokens = rows[i], .sample = i + 1 == rows.size()}};
      CHECK(runner.Submit(step).ok() && runner.Sample(i).ok());
      const Result<StepOutput> output = runner.Wait(i);
      CHECK(output.ok());
      if (!output->rows[0].logprobs.empty()) logprobs = output->rows[0].logprobs[0];
      step = {};
    }
    return logprobs;
  }

  std::unique_ptr<Ops> ops_ = *MakeCpuOps({.threads = 1});
  std::unique_ptr<Model> model_ = MakeToyModel(*ops_, {.keeps_state = true});
};

std::vector<TokenId> Tokens(size_t count, std::mt19937_64& random) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 96);
  return tokens;
}

TEST_F(RunnerState, TheStateCounts) {
  const std::unique_ptr<Runner> with = Make({});
  std::mt19937_64 random(1);
  std::unique_ptr<Model> without = MakeToyModel(*ops_);
  model_.swap(without);
  const std::unique_ptr<Runner> plain = Make({});
  for (int i = 0; i < 8; ++i) {
    const std::vector<TokenId> prompt = Tokens(12, random);
    EXPECT_NE(Draw(*with, prompt, {12}), Draw(*plain, prompt, {12}));
    ASSERT_TRUE(with->Reset().ok() && plain->Reset().ok());
  }
}

// Slots and their memory are used again and again, after preemptions and by other sequences.
TEST_F(RunnerState, ASequencesResultsDependOnNothingElse) {
  std::mt19937_64 random(2);
  std::vector<DriverRequest> requests;
  for (int i = 0; i < 24; ++i) {
    requests.push_back({.prompt = Tokens(1 + random() % 60, random),
                        .sampling = {.seed = random(), .logprobs = 4},
                        .num_generated = static_cast<int32_t>(1 + random() % 20)});
  }
  const std::vector<DriverResult> alone = Drive(*Make({.max_seqs = 1}), requests, {});
  DriverCounts counts;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const std::unique_ptr<Runner> runner =
        Make({.max_seqs = 5, .max_step_tokens = 64, .depth = 1 + static_cast<int>(seed % 2)});
    const DriverOptions options = {
        .seed = seed, .max_concurrent = 5, .chunk = 9, .random_chunks = true, .recompute = 0.15};
    EXPECT_EQ(Drive(*runner, requests, options, &counts), alone) << seed;
  }
  EXPECT_GT(counts.recomputed, 5);
}

TEST_F(RunnerState, APromptMayBeCutAnywhere) {
  const std::unique_ptr<Runner> runner = Make({});
  std::mt19937_64 random(3);
  const std::vector<TokenId> prompt = Tokens(40, random);
  const TokenLogprobs whole = Draw(*runner, prompt, {40});
  for (int32_t cut = 1; cut < 40; ++cut) {
    ASSERT_TRUE(runner->Reset().ok());  // and the state of the prompt before stays in the slot
    EXPECT_EQ(Draw(*runner, prompt, {cut, 40 - cut}), whole) << cut;
  }
}

TEST_F(RunnerState, IsCountedAsMemory) {
  // A convolution with three past inputs of 32 channels, and one row of 32.
  const int64_t slot_bytes = (3 * 32 + 32) * 4;
  ASSERT_EQ(model_->spec().cache.StateBytes(), slot_bytes);
  const std::unique_ptr<Model> plain = MakeToyModel(*ops_);
  const auto count = MakeCountOps();
  const RunnerShape shape = {.max_seqs = 9, .max_context = 200};
  const auto profile = [&](const Model& model, int64_t available) {
    return ProfileMemory(model, *count, shape, {.available_bytes = available});
  };
  const Result<MemoryProfile> with = profile(*model_, 1 << 30);
  const Result<MemoryProfile> without = profile(*plain, 1 << 30);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(with->state_bytes, 9 * slot_bytes);
  EXPECT_EQ(without->state_bytes, 0);
  // The cache gets less by that.
  const auto least = [&](const Model& model) {
    int64_t low = 0, high = 1 << 30;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (profile(model, middle).ok() ? high : low) = middle;
    }
    return high;
  };
  EXPECT_EQ(least(*model_) - least(*plain),
            9 * slot_bytes + with->arena_bytes - without->arena_bytes);
  const Status refused = profile(*model_, 1000).status();
  EXPECT_NE(refused.message().find("states of 9 sequences 4.6 KB"), std::string::npos)
      << refused.ToString();
}

TEST_F(RunnerState, EmbeddingsAreRefused) {
  const Status status = ProfileEmbedding(*model_, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "Toy: making embeddings with layers that keep a state is not supported");
}

}  // namespace
}  // namespace tokamak::testing
