// What the scheduler does with time, priorities and memory, seen from the steps it submits.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine_core.h"
#include "sim/fake_executor.h"

namespace tokamak::sim {
namespace {

class SchedulingTest : public ::testing::Test {
 protected:
  SchedulingTest() {
    ExecutorLimits& limits = executor_options_.limits;
    limits.cache.groups = {{CacheGroupKind::kFull, 16, 0}};
    limits.cache.num_device_blocks = 1000;
    limits.max_slots = 16;
    limits.max_step_tokens = 256;
    limits.max_context = 8000;
    limits.vocab_size = executor_options_.model.vocab = 1000;
    core_options_.max_seqs = 16;
    core_options_.max_step_tokens = 256;
  }
  void Start() {
    executor_ = std::make_unique<FakeExecutor>(executor_options_, 1, &clock_, &verdict_);
    executor_->on_submit = [this](const StepInput& step) { steps_.push_back(step); };
    auto core = EngineCore::Create(core_options_, &clock_, executor_.get());
    ASSERT_TRUE(core.ok()) << core.status().ToString();
    core_ = std::move(*core);
  }
  void Submit(RequestId id, int32_t prompt, int32_t max_tokens, int32_t priority = 0,
              int32_t n = 1) {
    Arrival arrival;
    arrival.id = id;
    for (int32_t i = 0; i < prompt; ++i) {
      arrival.prompt.push_back(static_cast<TokenId>((id * 131 + i * 7) % 1000));
    }
    arrival.sampling.max_tokens = max_tokens;
    arrival.sampling.seed = id * kNumSalts;
    arrival.sampling.n = n;
    arrival.priority = priority;
    arrival.on_output = [this, id](OutputChunk chunk) {
      auto& tokens = tokens_[{id, chunk.choice}];
      tokens.insert(tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
      if (chunk.finish_reason) ended_.push_back(id);
    };
    const Status status = core_->Submit(std::move(arrival));
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void RunAll() {
    for (int round = 0; core_->HasWork(); ++round) {
      ASSERT_LT(round, 100000);
      core_->Step();
    }
    EXPECT_TRUE(verdict_.ok()) << verdict_.what();
  }
  static int32_t TokensOf(const StepInput& step) {
    int32_t tokens = 0;
    for (const StepRow& row : step.rows) tokens += row.num_tokens;
    return tokens;
  }

  FakeExecutorOptions executor_options_;
  EngineCoreOptions core_options_;
  ManualClock clock_;
  Verdict verdict_;
  std::unique_ptr<FakeExecutor> executor_;
  std::unique_ptr<EngineCore> core_;
  std::vector<StepInput> steps_;
  std::map<std::pair<RequestId, int32_t>, std::vector<TokenId>> tokens_;
  std::vector<RequestId> ended_;
};

// The longest step, in milliseconds, that streams see while a long prompt is prefilled.
class TargetTest : public SchedulingTest {
 protected:
  double LongestStepMs(double target_ms) {
    core_options_.target_itl_ms = target_ms;
    executor_options_.step_seconds = 1e-3;
    executor_options_.token_seconds = 5e-5;  // 256 tokens: 13.8 ms
    Start();
    for (RequestId id = 1; id <= 4; ++id) Submit(id, 20, 400);
    for (int i = 0; i < 60; ++i) core_->Step();
    Submit(10, 3000, 4);
    double longest = 0;
    while (tokens_[{10, 0}].empty()) {
      const TimePoint before = clock_.Now();
      core_->Step();
      longest = std::max(longest, ToMillis(clock_.Now() - before));
      EXPECT_GE(steps_.back().rows.size(), 5u) << "streams go on beside the prefill";
    }
    prefill_steps_ = static_cast<int>(steps_.size());
    RunAll();
    return longest;
  }
  int prefill_steps_ = 0;
};

TEST_F(TargetTest, WithoutATargetALongPromptFillsTheSteps) { EXPECT_GT(LongestStepMs(0), 13); }

TEST_F(TargetTest, ALongPromptDoesNotStallStreamsBeyondTheTarget) {
  EXPECT_LE(LongestStepMs(5), 5.5);
}

TEST_F(TargetTest, ATargetThatCannotBeMetLeavesTheMinimumChunk) {
  LongestStepMs(0.1);
  int32_t widest = 0;
  for (size_t i = 70; i < steps_.size(); ++i) {
    for (const StepRow& row : steps_[i].rows) widest = std::max(widest, row.num_tokens);
  }
  EXPECT_EQ(widest, 16);
}

TEST_F(SchedulingTest, StepsNeverExceedTheirTokensAndPrefillsKeepAMinimum) {
  core_options_.max_step_tokens = 12;
  Start();
  for (RequestId id = 1; id <= 14; ++id) Submit(id, 3, 100);
  for (int i = 0; i < 40; ++i) core_->Step();
  Submit(20, 60, 2);
  const size_t from = steps_.size();
  while (tokens_[{20, 0}].empty()) core_->Step();
  EXPECT_LT(steps_.size() - from, 20u);  // at least 4 tokens a step beside 14 streams
  RunAll();
  for (const StepInput& step : steps_) EXPECT_LE(TokensOf(step), 12);
}

TEST_F(SchedulingTest, AFullHouseKeepsAllItsStreamsGoingWhileOthersWait) {
  core_options_.max_seqs = 12;
  core_options_.max_step_tokens = 12;
  Start();
  for (RequestId id = 1; id <= 12; ++id) Submit(id, 3, 50);
  for (int i = 0; i < 20; ++i) core_->Step();
  Submit(20, 60, 2);
  for (int i = 0; i < 10; ++i) {
    core_->Step();
    EXPECT_EQ(steps_.back().rows.size(), 12u);
  }
  RunAll();
}

TEST_F(SchedulingTest, EqualPrioritiesAreServedInOrderOfArrival) {
  core_options_.max_seqs = 2;
  Start();
  for (RequestId id = 1; id <= 6; ++id) Submit(id, 10, 10);
  RunAll();
  EXPECT_EQ(ended_, (std::vector<RequestId>{1, 2, 3, 4, 5, 6}));
}

TEST_F(SchedulingTest, AHigherPriorityTakesASlotAndTheOtherResumes) {
  core_options_.max_seqs = 1;
  Start();
  Submit(1, 10, 30);
  for (int i = 0; i < 10; ++i) core_->Step();
  Submit(2, 10, 5, /*priority=*/1);
  RunAll();
  EXPECT_EQ(ended_, (std::vector<RequestId>{2, 1}));
  EXPECT_EQ(core_->stats(clock_.Now()).preemptions, 1);
  EXPECT_EQ((tokens_[{1, 0}].size()), 30u);
}

TEST_F(SchedulingTest, ChoicesWaitForTheWholePromptAndShareIt) {
  core_options_.max_step_tokens = 32;
  Start();
  Submit(1, 100, 3, 0, /*n=*/3);
  RunAll();
  int admitted = 0;
  for (const StepInput& step : steps_) {
    for (const AdmitSlot& admit : step.admit) {
      EXPECT_EQ(admit.num_computed, admitted == 0 ? 0 : 99);
      ++admitted;
    }
  }
  EXPECT_EQ(admitted, 3);
}

TEST_F(SchedulingTest, APromptIsAdmittedOnlyIfAllOfItFitsBesideThoseAbove) {
  executor_options_.limits.cache.num_device_blocks = 15;  // a prompt takes 4, its answer one more
  core_options_.max_step_tokens = 32;
  Start();
  for (RequestId id = 1; id <= 6; ++id) Submit(id, 64, 12);
  RunAll();
  EXPECT_EQ(core_->stats(clock_.Now()).preemptions, 0);
}

// All tokens of a crowded run, and how many positions were computed.
TEST_F(SchedulingTest, SwappingComputesLessThanRecomputingAndDrawsTheSame) {
  std::map<std::pair<RequestId, int32_t>, std::vector<TokenId>> first;
  int64_t computed[2] = {};
  for (const int32_t host_blocks : {0, 200}) {
    executor_options_.limits.cache.num_device_blocks = 12;
    executor_options_.limits.cache.num_host_blocks = host_blocks;
    steps_.clear();
    tokens_.clear();
    Start();
    for (RequestId id = 1; id <= 4; ++id) Submit(id, 40, 60);
    RunAll();
    EXPECT_GT(core_->stats(clock_.Now()).preemptions, 0);
    for (const StepInput& step : steps_) computed[host_blocks > 0] += TokensOf(step);
    if (host_blocks == 0) first = tokens_;
  }
  EXPECT_EQ(tokens_, first);
  EXPECT_LT(computed[1], computed[0]);
}

}  // namespace
}  // namespace tokamak::sim
