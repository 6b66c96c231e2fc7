#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace tokamak {
namespace {

// Draws token (sum of the slot's tokens) % vocab and keeps no cache: enough to see what the engine
// does with tokens. tests/sim checks everything else.
class SumExecutor final : public Executor {
 public:
  SumExecutor() {
    limits_.cache.groups = {{CacheGroupKind::kFull, 4, 0}};
    limits_.cache.num_device_blocks = 16;
    limits_.max_slots = 4;
    limits_.max_step_tokens = 16;
    limits_.max_context = 48;
    limits_.vocab_size = 100;
  }

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(StepInput step) override {
    if (fail_submits > 0 && fail_submits-- > 0) return Unavailable("worker lost");
    EXPECT_EQ(step.number, next_number_++);
    StepOutput output;
    output.number = step.number;
    for (const AdmitSlot& admit : step.admit) {
      tokens_[admit.slot] = admit.tokens;
      admitted.push_back(admit);
    }
    for (const StepRow& row : step.rows) {
      RowOutput out;
      out.slot = row.slot;
      std::vector<TokenId>& tokens = tokens_[row.slot];
      if (row.sample) {
        int sum = 0;
        for (const TokenId token : tokens) sum += token;
        out.tokens = {sum % limits_.vocab_size};
        tokens.push_back(out.tokens[0]);
        if (out.tokens[0] == nan_token) out.health = RowHealth::kNotFinite;
      }
      output.rows.push_back(out);
    }
    steps.push_back(step);
    outputs_[step.number] = output;
    return Status();
  }
  Status Sample(uint64_t, std::vector<TokenMask>) override { return Status(); }
  bool Done(uint64_t) override { return false; }
  Result<StepOutput> Wait(uint64_t number) override { return outputs_.at(number); }
  Status Reset() override {
    ++resets;
    next_number_ = 0;
    if (fail_resets > 0 && fail_resets-- > 0) return Unavailable("worker still lost");
    return Status();
  }

  ExecutorLimits limits_;
  int fail_submits = 0;
  int fail_resets = 0;
  int resets = 0;
  TokenId nan_token = -1;
  std::vector<StepInput> steps;
  std::vector<AdmitSlot> admitted;

 private:
  uint64_t next_number_ = 0;
  std::map<SlotId, std::vector<TokenId>> tokens_;
  std::map<uint64_t, StepOutput> outputs_;
};

// What SumExecutor continues a prompt with.
std::vector<TokenId> Continue(std::vector<TokenId> prompt, int count) {
  std::vector<TokenId> out;
  for (int i = 0; i < count; ++i) {
    int sum = 0;
    for (const TokenId token : prompt) sum += token;
    prompt.push_back(sum % 100);
    out.push_back(prompt.back());
  }
  return out;
}

struct Collected {
  std::vector<TokenId> tokens;
  std::string text;
  std::optional<FinishReason> reason;
  Status error;
  Usage usage;
  uint64_t seed = 0;
};

class EngineCoreTest : public ::testing::Test {
 protected:
  void Start(EngineCoreOptions options = {}) {
    options.max_seqs = 4;
    options.max_step_tokens = 16;
    auto made = EngineCore::Create(std::move(options), &clock_, &executor_);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    core_ = std::move(*made);
  }
  Arrival Make(RequestId id, std::vector<TokenId> prompt, int max_tokens) {
    Arrival arrival;
    arrival.id = id;
    arrival.prompt = std::move(prompt);
    arrival.sampling.max_tokens = max_tokens;
    arrival.on_output = [this, id](OutputChunk chunk) {
      Collected& c = results_[{id, chunk.choice}];
      EXPECT_FALSE(c.reason) << "a chunk after the last";
      c.tokens.insert(c.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
      c.text += chunk.text;
      c.reason = chunk.finish_reason;
      c.error = chunk.error;
      c.usage = chunk.usage;
      c.seed = chunk.seed;
    };
    return arrival;
  }
  void RunAll() {
    for (int i = 0; core_->HasWork(); ++i) {
      ASSERT_LT(i, 10000) << "no end";
      clock_.Advance(std::chrono::milliseconds(1));
      core_->Step();
    }
  }

  ManualClock clock_;
  SumExecutor executor_;
  std::unique_ptr<EngineCore> core_;
  std::map<std::pair<RequestId, int32_t>, Collected> results_;
};

TEST_F(EngineCoreTest, GeneratesUpToMaxTokens) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 5));
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kLength);
  EXPECT_EQ(results_.at({1, 0}).usage.completion_tokens, 5);
}

TEST_F(EngineCoreTest, EndsBeforeAnEndTokenAndDoesNotEmitIt) {
  Start();
  Arrival arrival = Make(1, {1, 2, 3}, 20);
  arrival.eos_ids = {Continue({1, 2, 3}, 4)[3]};
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 3));
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kStop);
}

TEST_F(EngineCoreTest, ChoicesShareThePromptBlocksOfTheFirst) {
  Start();
  Arrival arrival = Make(1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 3);
  arrival.sampling.n = 3;
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();
  ASSERT_EQ(executor_.admitted.size(), 3u);
  EXPECT_EQ(executor_.admitted[0].num_computed, 0);
  EXPECT_EQ(executor_.admitted[1].num_computed, 9);
  EXPECT_EQ(executor_.admitted[2].num_computed, 9);
  EXPECT_EQ(executor_.steps[1].copies.size(), 2u);
  for (int choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(results_.at({1, choice}).tokens, Continue({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 3));
  }
}

TEST_F(EngineCoreTest, ASecondRequestFindsThePrefixOfTheFirst) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 4)).ok());
  RunAll();
  ASSERT_TRUE(core_->Submit(Make(2, {1, 2, 3, 4, 5, 6, 9, 9}, 4)).ok());
  Arrival salted = Make(3, {1, 2, 3, 4, 5, 6, 9, 9}, 4);
  salted.cache_root = "somebody else";
  ASSERT_TRUE(core_->Submit(std::move(salted)).ok());
  RunAll();
  EXPECT_EQ(results_.at({2, 0}).usage.cached_tokens, 6);
  EXPECT_EQ(results_.at({3, 0}).usage.cached_tokens, 0);
}

TEST_F(EngineCoreTest, RefusesWhatCanNeverRunWithTheNumbers) {
  executor_.limits_.cache.num_device_blocks = 8;  // 32 positions
  Start();
  EXPECT_EQ(core_->Submit(Make(1, {}, 1)).message(), "prompt: must have at least one token");
  EXPECT_EQ(core_->Submit(Make(1, {1, 100}, 1)).message(),
            "prompt[1]: token id 100 is not in [0, 100)");
  const Status context = core_->Submit(Make(1, std::vector<TokenId>(48, 1), 1));
  EXPECT_EQ(context.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(context.message(),
            "prompt: its 48 tokens and one to generate do not fit the context of 48 tokens");
  const Status pool = core_->Submit(Make(1, std::vector<TokenId>(20, 1), 14));
  EXPECT_EQ(pool.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(pool.message().find("a prompt of 20 tokens and up to 14 more need 9 KV blocks of 4 "
                                "positions, but there are 8"),
            std::string::npos)
      << pool.message();
  ASSERT_TRUE(core_->Submit(Make(1, std::vector<TokenId>(20, 1), 13)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens.size(), 13u);
}

TEST_F(EngineCoreTest, RefusesWhenTheQueueIsFullAndTheIdIsTaken) {
  EngineCoreOptions options;
  options.max_queue = 2;
  Start(options);
  ASSERT_TRUE(core_->Submit(Make(1, {1}, 1)).ok());
  EXPECT_EQ(core_->Submit(Make(1, {1}, 1)).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(core_->Submit(Make(2, {1}, 1)).ok());
  EXPECT_EQ(core_->Submit(Make(3, {1}, 1)).code(), StatusCode::kUnavailable);
  RunAll();
  EXPECT_TRUE(core_->Submit(Make(3, {1}, 1)).ok());
}

TEST_F(EngineCoreTest, CancellingEndsEveryChoiceOnce) {
  Start();
  Arrival arrival = Make(1, {1, 2, 3}, 40);
  arrival.sampling.n = 2;
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  for (int i = 0; i < 5; ++i) core_->Step();
  core_->Cancel(1);
  core_->Cancel(99);
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kCancelled);
  EXPECT_EQ(results_.at({1, 1}).reason, FinishReason::kCancelled);
}

TEST_F(EngineCoreTest, ANotFiniteRowEndsItsRequestAndNoOther) {
  executor_.nan_token = Continue({1, 2, 3}, 2)[1];
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  ASSERT_TRUE(core_->Submit(Make(2, {1, 1}, 3)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kError);
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 1));
  EXPECT_EQ(results_.at({2, 0}).tokens, Continue({1, 1}, 3));
}

TEST_F(EngineCoreTest, AnExecutorErrorEndsWhatWasInFlightAndTheRestGoesOn) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  core_->Step();
  executor_.fail_submits = 1;
  core_->Step();
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kError);
  EXPECT_EQ(results_.at({1, 0}).error.message(), "worker lost");
  ASSERT_TRUE(core_->Submit(Make(2, {1, 1}, 3)).ok());
  RunAll();
  EXPECT_EQ(executor_.resets, 1);
  EXPECT_EQ(results_.at({2, 0}).tokens, Continue({1, 1}, 3));
}

TEST_F(EngineCoreTest, AnExecutorThatRecoversInTimeGoesOn) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  executor_.fail_submits = 1;
  executor_.fail_resets = 1;
  core_->Step();
  ASSERT_TRUE(core_->Submit(Make(2, {1, 1}, 3)).ok());
  RunAll();
  EXPECT_EQ(executor_.resets, 2);
  EXPECT_TRUE(core_->health().ok());
  EXPECT_EQ(results_.at({2, 0}).tokens, Continue({1, 1}, 3));
}

TEST_F(EngineCoreTest, AnExecutorThatStaysBrokenEndsEverythingForGoodAfterBoundedRetries) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  executor_.fail_submits = 1;
  executor_.fail_resets = 2;
  core_->Step();
  EXPECT_TRUE(core_->health().ok());
  Arrival waiting = Make(2, {1, 1}, 3);
  waiting.sampling.n = 2;
  ASSERT_TRUE(core_->Submit(std::move(waiting)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).error.message(), "worker lost");
  for (const int choice : {0, 1}) {
    EXPECT_EQ(results_.at({2, choice}).reason, FinishReason::kError);
    EXPECT_EQ(results_.at({2, choice}).error.message(), "worker still lost");
  }
  EXPECT_EQ(core_->health().message(), "worker still lost");
  // Now it would recover, but nobody asks it any more.
  const Status refused = core_->Submit(Make(3, {1, 1}, 3));
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_EQ(refused.message(), "the engine has failed: worker still lost");
  core_->Cancel(1);
  core_->Step();
  EXPECT_FALSE(core_->HasWork());
  EXPECT_EQ(executor_.resets, 2);
}

TEST_F(EngineCoreTest, ItKnowsThatItHasFailedWithoutAnotherRequest) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  executor_.fail_submits = 1;
  executor_.fail_resets = 1000;
  clock_.Advance(std::chrono::hours(1));
  core_->Step();
  EXPECT_EQ(core_->stats(clock_.Now()).seconds_since_progress, 0) << "idle is not stuck";
  RunAll();
  EXPECT_EQ(core_->health().message(), "worker still lost");
  EXPECT_EQ(executor_.resets, 2);
}

TEST_F(EngineCoreTest, ARequestThatACallbackSubmitsInTheStepThatGivesUpEndsToo) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  executor_.fail_submits = 1;
  executor_.fail_resets = 1000;
  core_->Step();
  Arrival cancelled = Make(2, {4, 5}, 5);
  cancelled.on_output = [this, inner = cancelled.on_output](OutputChunk chunk) {
    inner(std::move(chunk));
    EXPECT_TRUE(core_->Submit(Make(3, {1, 1}, 3)).ok());
  };
  ASSERT_TRUE(core_->Submit(std::move(cancelled)).ok());
  core_->Step();
  ASSERT_TRUE(core_->health().ok());
  core_->Cancel(2);
  core_->Step();
  ASSERT_FALSE(core_->health().ok());
  RunAll();
  EXPECT_EQ(results_.at({2, 0}).reason, FinishReason::kCancelled);
  EXPECT_EQ(results_.at({3, 0}).error.message(), "worker still lost");
}

TEST_F(EngineCoreTest, ZeroMaxTokensEndsAtOnce) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 0)).ok());
  core_->Step();
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kLength);
  EXPECT_FALSE(core_->HasWork());
  EXPECT_TRUE(executor_.steps.empty());
}

TEST_F(EngineCoreTest, EffectiveSeedsComeFromTheRequestOrDifferPerArrival) {
  Start();
  Arrival given = Make(1, {1}, 1);
  given.sampling.seed = 42;
  ASSERT_TRUE(core_->Submit(std::move(given)).ok());
  ASSERT_TRUE(core_->Submit(Make(2, {1}, 1)).ok());
  ASSERT_TRUE(core_->Submit(Make(3, {1}, 1)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).seed, 42u);
  EXPECT_NE(results_.at({2, 0}).seed, results_.at({3, 0}).seed);
  EXPECT_EQ(executor_.admitted[1].sampling.seed, results_.at({2, 0}).seed);
}

}  // namespace
}  // namespace tokamak
