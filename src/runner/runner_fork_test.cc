// Forked slots: they go on as sequences that were admitted with the same tokens.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "runner/runner.h"
#include "runner/testing/queued_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

using Candidates = std::vector<TokenLogprobs::Entry>;

constexpr int32_t kBlockSize = 4;
constexpr int32_t kNumCandidates = 7;

// Everything whose effect depends on the history: penalties, and words that it completes.
SamplingParams Sampling() {
  return {.repetition_penalty = 1.7f,
          .frequency_penalty = 0.4f,
          .repeat_last_n = 9,
          .bad_words_ids = {{5, 6}, {11, 12, 13}},
          .seed = 1,
          .min_tokens = 3,
          .stop_token_ids = {21, 22}};
}

// A runner with a full group and one with a window.
class Device {
 public:
  explicit Device(bool queued = false, bool keeps_state = false) {
    std::unique_ptr<Ops> ops = *MakeCpuOps({.threads = 1});
    if (queued) ops = MakeQueuedOps(std::move(ops), 7);
    ops_ = std::move(ops);
    model_ = MakeToyModel(*ops_, {.keeps_state = keeps_state});
    auto runner = Runner::Create(
        *model_, *ops_, {.max_seqs = 4, .max_context = 64, .block_size = kBlockSize, .depth = 2},
        {.arena_bytes = 8 << 20, .num_device_blocks = 60, .num_host_blocks = 0});
    CHECK_MSG(runner.ok(), runner.status().ToString());
    runner_ = *std::move(runner);
  }

  void Submit(StepInput step) {
    step.number = next_++;
    Check(runner_->Submit(std::move(step)));
    Check(runner_->Sample(next_ - 1));
  }
  std::vector<Candidates> Wait() {
    Result<StepOutput> output = runner_->Wait(waited_++);
    Check(output.status());
    std::vector<Candidates> candidates;
    for (const RowOutput& row : output->rows) {
      EXPECT_EQ(row.health, RowHealth::kOk);
      EXPECT_TRUE(row.tokens.empty());
      candidates.push_back(row.candidates);
    }
    return candidates;
  }
  Runner& runner() { return *runner_; }

 private:
  static void Check(const Status& status) { CHECK_MSG(status.ok(), status.ToString()); }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Runner> runner_;
  uint64_t next_ = 0;
  uint64_t waited_ = 0;
};

// The candidates behind `tokens`, computed by a runner of its own in one row.
Candidates Alone(const std::vector<TokenId>& tokens, int32_t num_prompt, bool keeps_state = false) {
  Device device(/*queued=*/false, keeps_state);
  StepInput step;
  step.admit = {
      {.slot = 3, .tokens = tokens, .num_prompt_tokens = num_prompt, .sampling = Sampling()}};
  const auto count = static_cast<int32_t>(tokens.size());
  for (const int32_t group : {0, 1}) {
    std::vector<BlockId> blocks;
    for (BlockId i = 0; i * kBlockSize < count; ++i) blocks.push_back(30 + 2 * i + group);
    step.append.push_back({.slot = 3, .group = group, .blocks = blocks});
  }
  step.rows = {{.slot = 3, .num_tokens = count, .num_candidates = kNumCandidates}};
  device.Submit(std::move(step));
  return device.Wait()[0];
}

std::vector<TokenId> Join(std::vector<TokenId> tokens, const std::vector<TokenId>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

AppendBlocks Append(SequenceSlotId slot, int32_t group, std::vector<BlockId> blocks) {
  return {.slot = slot, .group = group, .blocks = std::move(blocks)};
}

CopyBlock Copy(BlockId source, BlockId destination) {
  return {.source = source, .destination = destination};
}

StepRow Row(SequenceSlotId slot, int32_t num_tokens) {
  return {.slot = slot, .num_tokens = num_tokens, .num_candidates = kNumCandidates};
}

TEST(RunnerFork, AForkGoesOnLikeASequenceAdmittedWithItsTokens) {
  const std::vector<TokenId> prompt = {4, 5, 6, 11, 12, 40};
  // The toy's state is on the CPU only.
  for (const auto& [queued, keeps_state] :
       {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    SCOPED_TRACE(keeps_state);
    const auto alone = [&, keeps_state = keeps_state](const std::vector<TokenId>& tokens) {
      return Alone(tokens, 6, keeps_state);
    };
    Device device(queued, keeps_state);
    device.Submit(
        {.admit = {{.slot = 0, .tokens = prompt, .num_prompt_tokens = 6, .sampling = Sampling()}},
         .append = {Append(0, 0, {1, 2}), Append(0, 1, {11, 12})},
         .rows = {Row(0, 6)}});
    EXPECT_EQ(device.Wait()[0], alone(prompt));
    // Slots 1 and 2 share the first block and get copies of the second one. Slot 0 goes on.
    device.Submit({.copies = {Copy(2, 3), Copy(12, 13), Copy(2, 4), Copy(12, 14)},
                   .fork = {{.slot = 1, .source = 0, .tokens = {5}},
                            {.slot = 2, .source = 0, .tokens = {11, 12, 30}},
                            {.slot = 0, .source = 0, .tokens = {9}}},
                   .append = {Append(1, 0, {1, 3}), Append(1, 1, {11, 13}), Append(2, 0, {1, 4, 5}),
                              Append(2, 1, {11, 14, 15})},
                   .rows = {Row(0, 1), Row(1, 1), Row(2, 3)}});
    std::vector<Candidates> candidates = device.Wait();
    EXPECT_EQ(candidates[0], alone(Join(prompt, {9})));
    EXPECT_EQ(candidates[1], alone(Join(prompt, {5})));
    EXPECT_EQ(candidates[2], alone(Join(prompt, {11, 12, 30})));
    // Slot 0 has no successor: its slot goes to one of slot 2, which goes on itself, too.
    device.Submit({.free = {0},
                   .copies = {Copy(5, 6), Copy(15, 16)},
                   .fork = {{.slot = 0, .source = 2, .tokens = {7}},
                            {.slot = 2, .source = 2, .tokens = {8}},
                            {.slot = 1, .source = 1, .tokens = {6}}},
                   .append = {Append(0, 0, {1, 4, 6}), Append(0, 1, {11, 14, 16})},
                   .rows = {Row(0, 1), Row(1, 1), Row(2, 1)}});
    candidates = device.Wait();
    EXPECT_EQ(candidates[0], alone(Join(prompt, {11, 12, 30, 7})));
    EXPECT_EQ(candidates[1], alone(Join(prompt, {5, 6})));
    EXPECT_EQ(candidates[2], alone(Join(prompt, {11, 12, 30, 8})));
  }
}

// A row may wait for a mask before it gives its candidates, beside rows that draw.
TEST(RunnerFork, AMaskLimitsCandidates) {
  Device device;
  const std::vector<TokenId> prompt = {4, 5, 40};
  StepInput step = {
      .admit = {{.slot = 0, .tokens = prompt, .num_prompt_tokens = 3, .sampling = Sampling()},
                {.slot = 1, .tokens = prompt, .num_prompt_tokens = 3, .sampling = {.seed = 1}}},
      .append = {Append(0, 0, {1}), Append(0, 1, {2}), Append(1, 0, {3}), Append(1, 1, {4})},
      .rows = {Row(0, 3), {.slot = 1, .num_tokens = 3, .sample = true}}};
  step.rows[0].masked = true;
  Runner& runner = device.runner();
  ASSERT_TRUE(runner.Submit(step).ok());
  ASSERT_TRUE(runner.Sample(0).ok());
  const Candidates all = Alone(prompt, 3);
  TokenMask mask = {.slot = 0, .allowed = {0, 0, 0}};
  for (const size_t i : {1u, 4u}) {
    const TokenId token = all[i].token_id;
    mask.allowed[static_cast<size_t>(token) / 32] |= uint32_t{1} << token % 32;
  }
  ASSERT_TRUE(runner.SampleMasked(0, {mask}).ok());
  const Result<StepOutput> output = runner.Wait(0);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->rows[0].candidates, (Candidates{all[1], all[4]}));
  EXPECT_EQ(output->rows[1].tokens.size(), 1u);
}

}  // namespace
}  // namespace tokamak::testing
