// How a runner refuses steps that break the contract of runner.h, and how masks act.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "runner/runner.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

// A tiny runner, and steps made by hand.
class RunnerProtocol : public ::testing::Test {
 protected:
  StepInput Admit(uint64_t number) {
    return {.number = number,
            .admit = {{.slot = 0, .tokens = {1, 2, 3}, .num_prompt_tokens = 3}},
            .append = {{.slot = 0, .group = 0, .blocks = {0, 1}},
                       {.slot = 0, .group = 1, .blocks = {2, 3}}},
            .rows = {{.slot = 0, .num_tokens = 3, .sample = true}}};
  }
  StepInput AdmitMasked(uint64_t number) {
    StepInput step = Admit(number);
    step.rows[0].masked = true;
    return step;
  }
  static StepInput Decode(uint64_t number) {
    return {.number = number, .rows = {{.slot = 0, .num_tokens = 1, .sample = true}}};
  }
  void ExpectRefused(const Status& status, const std::string& message) {
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.message(), message);
    // Everything fails until a reset.
    EXPECT_EQ(runner_->Submit(Admit(0)).message(), message);
    EXPECT_EQ(runner_->Sample(0).message(), message);
    EXPECT_EQ(runner_->Wait(0).status().message(), message);
    EXPECT_TRUE(runner_->Done(0));
    ASSERT_TRUE(runner_->Reset().ok());
    ASSERT_TRUE(runner_->Submit(Admit(0)).ok());
    ASSERT_TRUE(runner_->Sample(0).ok());
    EXPECT_TRUE(runner_->Wait(0).ok());
  }

  void SetUp() override {
    auto ops = MakeCpuOps({.threads = 1});
    ASSERT_TRUE(ops.ok());
    ops_ = *std::move(ops);
    model_ = MakeToyModel(*ops_);
    auto runner = Runner::Create(
        *model_, *ops_, {.max_seqs = 2, .max_step_drafts = 3, .max_context = 200, .depth = 2},
        {.arena_bytes = 32 << 20, .num_device_blocks = 3000, .num_host_blocks = 3000});
    ASSERT_TRUE(runner.ok());
    runner_ = *std::move(runner);
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Runner> runner_;
};

TEST_F(RunnerProtocol, RefusesAGapInTheNumbers) {
  ExpectRefused(runner_->Submit(Admit(1)), "step 1: got step 1, expected step 0");
}

TEST_F(RunnerProtocol, RefusesSubmitBeforeSample) {
  ASSERT_TRUE(runner_->Submit(Admit(0)).ok());
  EXPECT_FALSE(runner_->Done(0));
  ExpectRefused(runner_->Submit(Decode(1)),
                "step 1: was submitted before all rows of step 0 were sampled");
}

TEST_F(RunnerProtocol, RefusesSubmitBeforeMaskedRowsAreSampled) {
  ASSERT_TRUE(runner_->Submit(AdmitMasked(0)).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  EXPECT_FALSE(runner_->Done(0));
  ExpectRefused(runner_->Submit(Decode(1)),
                "step 1: was submitted before all rows of step 0 were sampled");
}

TEST_F(RunnerProtocol, RefusesToSampleMaskedRowsFirst) {
  ASSERT_TRUE(runner_->Submit(AdmitMasked(0)).ok());
  ExpectRefused(runner_->SampleMasked(0, {}),
                "step 0: SampleMasked was called, but its masked rows are not next");
}

TEST_F(RunnerProtocol, RefusesToSampleMaskedRowsWhereThereAreNone) {
  ASSERT_TRUE(runner_->Submit(Admit(0)).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  ExpectRefused(runner_->SampleMasked(0, {}),
                "step 0: SampleMasked was called, but its masked rows are not next");
}

TEST_F(RunnerProtocol, RefusesTooManyStepsInFlight) {
  for (uint64_t number = 0; number < 2; ++number) {
    ASSERT_TRUE(runner_->Submit(number == 0 ? Admit(0) : Decode(1)).ok());
    ASSERT_TRUE(runner_->Sample(number).ok());
  }
  ExpectRefused(runner_->Submit(Decode(2)),
                "step 2: 2 steps are in flight already, the oldest is step 0");
}

TEST_F(RunnerProtocol, RefusesToSampleTwice) {
  ASSERT_TRUE(runner_->Submit(Admit(0)).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  ExpectRefused(
      runner_->Sample(0),
      "step 0: Sample was called, but step 1 is the next to sample, and 1 steps are submitted");
}

TEST_F(RunnerProtocol, RefusesWaitOutOfOrder) {
  for (uint64_t number = 0; number < 2; ++number) {
    ASSERT_TRUE(runner_->Submit(number == 0 ? Admit(0) : Decode(1)).ok());
    ASSERT_TRUE(runner_->Sample(number).ok());
  }
  ExpectRefused(runner_->Wait(1).status(),
                "step 1: Wait was called, but step 0 is the oldest, and 2 steps are sampled");
}

TEST_F(RunnerProtocol, RefusesWaitBeforeSample) {
  ASSERT_TRUE(runner_->Submit(Admit(0)).ok());
  ExpectRefused(runner_->Wait(0).status(),
                "step 0: Wait was called, but step 0 is the oldest, and 0 steps are sampled");
}

TEST_F(RunnerProtocol, RefusesAMaskOfARowThatWaitsForNone) {
  ASSERT_TRUE(runner_->Submit(AdmitMasked(0)).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  ExpectRefused(runner_->SampleMasked(0, {{.slot = 1, .allowed = {1, 1, 1}}}),
                "step 0: there is a mask for slot 1, which waits for none");
}

TEST_F(RunnerProtocol, RefusesAMaskOfTheWrongSize) {
  ASSERT_TRUE(runner_->Submit(AdmitMasked(0)).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  ExpectRefused(runner_->SampleMasked(0, {{.slot = 0, .allowed = {1, 1}}}),
                "step 0: the mask of slot 0 has 2 words, but the vocabulary needs 3");
}

// A row with drafts has a mask for each draw, or none at all.
TEST_F(RunnerProtocol, ChecksTheMasksOfARowWithDrafts) {
  const auto mask = [](int32_t draw, uint32_t words = 3) {
    return TokenMask{
        .slot = 0, .draw = draw, .allowed = std::vector<uint32_t>(words, ~uint32_t{0})};
  };
  const struct {
    std::vector<TokenMask> masks;
    std::string message;
  } cases[] = {
      {{mask(0), mask(1)}, "step 0: slot 0 has 2 masks for 3 draws"},
      {{mask(1), mask(2)}, "step 0: slot 0 has 2 masks for 3 draws"},
      {{mask(0), mask(2), mask(0)}, "step 0: there are two masks for draw 0 of slot 0"},
      {{mask(0), mask(1), mask(2), mask(3)},
       "step 0: there is a mask for draw 3 of slot 0, which has 3"},
      {{mask(-1)}, "step 0: there is a mask for draw -1 of slot 0, which has 3"},
      {{mask(0), mask(1), mask(2, 2)},
       "step 0: the mask of slot 0 has 2 words, but the vocabulary needs 3"},
      {{mask(2), mask(0), mask(1)}, ""},
      {{}, ""},
  };
  for (const auto& c : cases) {
    ASSERT_TRUE(runner_->Reset().ok());
    StepInput step = AdmitMasked(0);
    step.rows[0].drafts = {4, 5};
    step.rows[0].num_tokens += 2;
    ASSERT_TRUE(runner_->Submit(step).ok());
    ASSERT_TRUE(runner_->Sample(0).ok());
    const Status status = runner_->SampleMasked(0, c.masks);
    EXPECT_EQ(status.message(), c.message);
    if (!status.ok()) continue;
    EXPECT_TRUE(runner_->Wait(0).ok());
  }
}

TEST_F(RunnerProtocol, ARefusedStepNamesItself) {
  StepInput step = Admit(0);
  step.rows[0].num_tokens = 4;
  ExpectRefused(runner_->Submit(step),
                "step 0: rows: slot 0 has 3 tokens, 0 of them computed; a row of 4 does not fit");
}

TEST_F(RunnerProtocol, EmptyStepsRun) {
  for (uint64_t number = 0; number < 5; ++number) {
    ASSERT_TRUE(runner_->Submit({.number = number}).ok());
    ASSERT_TRUE(runner_->Sample(number).ok());
    const Result<StepOutput> output = runner_->Wait(number);
    ASSERT_TRUE(output.ok());
    EXPECT_EQ(*output, (StepOutput{.number = number, .rows = {}}));
  }
}

TEST_F(RunnerProtocol, AMaskDecidesTheTokenOfTheNextStep) {
  ASSERT_TRUE(runner_->Submit(AdmitMasked(0)).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  ASSERT_TRUE(runner_->SampleMasked(0, {{.slot = 0, .allowed = {0, uint32_t{1} << 9, 0}}}).ok());
  ASSERT_TRUE(runner_->Submit(Decode(1)).ok());
  ASSERT_TRUE(runner_->Sample(1).ok());
  EXPECT_EQ(runner_->Wait(0)->rows[0].tokens, std::vector<TokenId>{41});
  const std::vector<TokenId> next = runner_->Wait(1)->rows[0].tokens;
  // The same history, with all tokens known.
  ASSERT_TRUE(runner_->Reset().ok());
  StepInput known = Admit(0);
  known.admit[0].tokens = {1, 2, 3, 41};
  known.rows[0].num_tokens = 4;
  ASSERT_TRUE(runner_->Submit(known).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  EXPECT_EQ(runner_->Wait(0)->rows[0].tokens, next);
}

TEST_F(RunnerProtocol, MasksApplyToGreedyRows) {
  // Returns the tokens of three steps; the mask of step i forbids forbidden[i].
  const auto tokens = [this](const std::vector<TokenId>& forbidden,
                             std::optional<int32_t> logprobs) {
    EXPECT_TRUE(runner_->Reset().ok());
    std::vector<TokenId> drawn;
    for (uint64_t number = 0; number < 3; ++number) {
      StepInput step = number == 0 ? Admit(0) : Decode(number);
      if (number == 0) {
        step.admit[0].sampling = {.temperature = 0, .logprobs = logprobs};
      }
      const bool masked = number < forbidden.size() && forbidden[number] >= 0;
      step.rows[0].masked = masked;
      EXPECT_TRUE(runner_->Submit(step).ok());
      EXPECT_TRUE(runner_->Sample(number).ok());
      if (masked) {
        TokenMask mask = {.slot = 0, .allowed = std::vector<uint32_t>(3, ~uint32_t{0})};
        const auto id = static_cast<uint32_t>(forbidden[number]);
        mask.allowed[id / 32] &= ~(uint32_t{1} << id % 32);
        EXPECT_TRUE(runner_->SampleMasked(number, {mask}).ok());
      }
      drawn.push_back(runner_->Wait(number)->rows[0].tokens.at(0));
    }
    return drawn;
  };
  const std::vector<TokenId> free = tokens({}, std::nullopt);
  EXPECT_EQ(tokens({}, 0), free);
  for (const int mask : {1, 2, 4, 3, 5, 7}) {
    std::vector<TokenId> forbidden;
    for (size_t i = 0; i < 3; ++i) forbidden.push_back((mask >> i & 1) != 0 ? free[i] : -1);
    const std::vector<TokenId> masked = tokens(forbidden, std::nullopt);
    EXPECT_EQ(masked, tokens(forbidden, 0)) << mask;
    EXPECT_NE(masked, free) << mask;
  }
}

TEST_F(RunnerProtocol, NothingAllowedEndsTheRow) {
  ASSERT_TRUE(runner_->Submit(AdmitMasked(0)).ok());
  ASSERT_TRUE(runner_->Sample(0).ok());
  ASSERT_TRUE(runner_->SampleMasked(0, {{.slot = 0, .allowed = {0, 0, 0}}}).ok());
  const Result<StepOutput> output = runner_->Wait(0);
  EXPECT_EQ(output->rows[0].health, RowHealth::kNoCandidate);
  EXPECT_TRUE(output->rows[0].tokens.empty());
}

}  // namespace
}  // namespace tokamak::testing
