#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "engine/testing/engine_core_fixture.h"

namespace tokamak {
namespace {

TEST_F(EngineCoreTest, GeneratesUpToMaxTokens) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 5));
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kLength);
  EXPECT_EQ(results_.at({1, 0}).usage.completion_tokens, 5);
}

TEST_F(EngineCoreTest, CountsTheBytesOfTheCacheThatWindowsLetAttentionRead) {
  executor_.limits_.cache.groups.push_back({CacheGroupKind::kWindow, 4, 3});
  executor_.limits_.cache.block_bytes = 40;  // 10 per position in each group
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3, 4, 5, 6}, 3)).ok());
  RunAll();
  // Full group + window: six positions in both, then 7 + 3, then 8 + 3.
  EXPECT_EQ(core_->stats(clock_.Now()).kv_bytes_read, 10 * (6 + 6 + 7 + 3 + 8 + 3));
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

TEST_F(EngineCoreTest, RefusesRequestsThatCanNeverRunWithTheNumbers) {
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

TEST_F(EngineCoreTest, AFullQueueStillTakesAShareOfEveryClient) {
  EngineCoreOptions options;
  options.max_queue = 6;
  Start(options);
  RequestId id = 1;
  // Returns how many of the client's requests are accepted before one is refused.
  const auto fill = [&](const std::string& client) {
    for (int taken = 0;; ++taken) {
      Arrival arrival = Make(id++, {1}, 1);
      arrival.client = client;
      const Status status = core_->Submit(std::move(arrival));
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      return taken;
    }
  };
  EXPECT_EQ(fill("first"), 6);
  EXPECT_EQ(fill("second"), 3);
  EXPECT_EQ(fill("third"), 2);
  EXPECT_EQ(fill("first"), 0);
  RunAll();
  EXPECT_EQ(fill("second"), 6) << "what has ended counts no more";
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

TEST_F(EngineCoreTest, ARowThatCannotGoOnEndsOnlyItsRequest) {
  const std::map<RowHealth, std::string> messages = {
      {RowHealth::kNotFinite, "the model's output is not finite at position 3"},
      {RowHealth::kNoCandidate, "min_tokens: no token can follow position 3"}};
  executor_.bad_token = Continue({1, 2, 3}, 2)[1];
  for (const int depth : {1, 2}) {
    for (const auto& [health, message] : messages) {
      SCOPED_TRACE(message);
      executor_.limits_.depth = depth;
      executor_.bad_health = health;
      results_.clear();
      Start();
      ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
      ASSERT_TRUE(core_->Submit(Make(2, {1, 1}, 3)).ok());
      RunAll();
      EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kError);
      EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 1));
      EXPECT_EQ(results_.at({1, 0}).error.message().substr(0, message.size()), message);
      EXPECT_EQ(results_.at({2, 0}).tokens, Continue({1, 1}, 3));
      ASSERT_TRUE(executor_.Reset().ok());
    }
  }
}

TEST_F(EngineCoreTest, RefusesAllowedTokensNoneOfWhichCanBeDrawn) {
  Start();
  Arrival arrival = Make(1, {1, 2, 3}, 5);
  arrival.eos_ids = {98};
  arrival.sampling.allowed_token_ids = {98, 7};
  arrival.sampling.bad_words_ids = {{98}, {7, 7}};
  arrival.sampling.min_tokens = 2;
  EXPECT_TRUE(core_->Check(arrival).ok());
  arrival.sampling.bad_words_ids.push_back({7});
  EXPECT_TRUE(core_->Check(arrival).message().starts_with("bad_words: "));
  arrival.sampling.bad_words_ids.clear();
  arrival.sampling.stop_token_ids = {7};
  EXPECT_TRUE(core_->Check(arrival).message().starts_with("min_tokens: 2 leaves no token"));
}

TEST_F(EngineCoreTest, RefusesMinTokensThatLeaveNoTokenToGenerate) {
  Start();
  Arrival arrival = Make(1, {1, 2, 3}, 5);
  arrival.sampling.min_tokens = 2;
  for (TokenId id = 0; id < 99; ++id) arrival.sampling.stop_token_ids.push_back(id);
  arrival.sampling.stop_token_ids.push_back(98);
  arrival.eos_ids = {98, 100, -1};  // some tokenizers have more ids than their model
  EXPECT_TRUE(core_->Check(arrival).ok());
  arrival.eos_ids = {99};
  const Status status = core_->Check(arrival);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(
      status.message().starts_with("min_tokens: 2 leaves no token to generate, because all 100"))
      << status.ToString();
  arrival.sampling.ignore_eos = true;
  EXPECT_TRUE(core_->Check(arrival).ok());
  arrival.sampling.stop_token_ids.push_back(99);
  EXPECT_FALSE(core_->Check(arrival).ok());
  arrival.sampling.min_tokens = 0;
  EXPECT_TRUE(core_->Check(arrival).ok());
}

TEST_F(EngineCoreTest, AnExecutorErrorEndsOnlyTheRequestsInFlight) {
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

// A full device is no prompt that is too long, and another rank's weights are no bad request.
TEST_F(EngineCoreTest, AnExecutorErrorSaysNotThatTheRequestIsWrong) {
  for (const StatusCode code :
       {StatusCode::kInvalidArgument, StatusCode::kNotFound, StatusCode::kDataLoss,
        StatusCode::kUnimplemented, StatusCode::kResourceExhausted, StatusCode::kUnavailable,
        StatusCode::kCancelled, StatusCode::kDeadlineExceeded, StatusCode::kInternal}) {
    const bool later = code == StatusCode::kUnavailable;
    executor_.submit_error = Status(code, "step lost");
    for (const int failures : {1, 3}) {  // the third ends those that wait, too
      results_.clear();
      ASSERT_TRUE(executor_.Reset().ok());
      Start();
      for (RequestId id = 1; id <= 13; ++id) {  // four fit into a step
        ASSERT_TRUE(core_->Submit(Make(id, {1, 2, 3}, 5)).ok());
      }
      executor_.fail_submits = failures;
      for (int i = 0; i < failures; ++i) core_->Step();
      EXPECT_EQ(results_.size(), failures == 1 ? 4u : 13u);
      for (const auto& [id, result] : results_) {
        EXPECT_EQ(result.error.code(), later ? code : StatusCode::kInternal);
        EXPECT_EQ(result.error.message(), "step lost");
      }
    }
  }
}

TEST_F(EngineCoreTest, ALostExecutorStartsAgainAndHarmsNoRequestBetweenItsSteps) {
  Start();
  std::vector<std::string> reasons;
  executor_.on_reset = [&] {
    EXPECT_TRUE(core_->restarting());
    reasons.push_back(core_->stats(clock_.Now()).restarting);
  };
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 5)).ok());
  core_->Step();
  core_->LoseExecutor(Unavailable("worker died"));
  core_->LoseExecutor(Unavailable("heard twice"));
  RunAll();
  EXPECT_EQ(results_.at({1, 0}).tokens, Continue({1, 2, 3}, 5));
  EXPECT_EQ(reasons, std::vector<std::string>{"worker died"});
  EXPECT_FALSE(core_->restarting());
  // Deaths while idle are no failed steps, whatever their number.
  for (int i = 0; i < 5; ++i) {
    core_->LoseExecutor(Unavailable("worker died"));
    EXPECT_TRUE(core_->HasWork());
    RunAll();
  }
  EXPECT_EQ(executor_.resets, 6);
  EXPECT_TRUE(core_->health().ok());
  // So one reset that fails is only the first failure in a row.
  ASSERT_TRUE(core_->Submit(Make(2, {1, 1}, 3)).ok());
  core_->LoseExecutor(Unavailable("worker died"));
  executor_.fail_resets = 1;
  RunAll();
  EXPECT_TRUE(core_->health().ok());
  EXPECT_EQ(results_.at({2, 0}).tokens, Continue({1, 1}, 3));
}

TEST_F(EngineCoreTest, TellsTheExecutorHowLongStepsLikeTheOldestTake) {
  Start();
  executor_.on_wait = [this] { clock_.Advance(std::chrono::milliseconds(20)); };
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 40)).ok());
  RunAll();
  ASSERT_EQ(executor_.expected_seconds.size(), 40u);
  EXPECT_EQ(executor_.expected_seconds.front(), 0) << "no step was seen before";
  EXPECT_NEAR(executor_.expected_seconds.back(), 0.02, 0.001);
}

TEST_F(EngineCoreTest, AnOutputThatDoesNotFitItsStepIsAnExecutorError) {
  const auto error_with = [this](std::function<void(RowOutput*)> change_row) {
    executor_.change_row = std::move(change_row);
    EXPECT_TRUE(executor_.Reset().ok());  // its steps begin with 0 again
    Start();
    EXPECT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 2)).ok());
    RunAll();
    return std::string(std::exchange(results_, {}).at({1, 0}).error.message());
  };
  EXPECT_EQ(error_with({}), "");
  EXPECT_EQ(error_with([](RowOutput* row) { row->slot = 9; }),
            "executor: step 0 row 0 is for slot 9, expected 0");
  EXPECT_EQ(error_with([](RowOutput* row) { row->tokens = {100}; }),
            "executor: step 0 row 0 has token 100, but the vocabulary has 100");
  EXPECT_EQ(error_with([](RowOutput* row) { row->tokens.push_back(4); }),
            "executor: step 0 row 0 has 2 tokens, although sample is true with 0 drafts");
  EXPECT_EQ(error_with([](RowOutput* row) { row->logprobs.resize(2); }),
            "executor: step 0 row 0 has 1 tokens and 2 logprobs with health 0");
  EXPECT_EQ(error_with([](RowOutput* row) { row->health = RowHealth::kNotFinite; }),
            "executor: step 0 row 0 has 1 tokens and 0 logprobs with health 1");
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

TEST_F(EngineCoreTest, AnExecutorThatStaysBrokenFailsTheEngineAfterBoundedRetries) {
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
  // The executor would recover now, but the engine never calls it again.
  const Status refused = core_->Submit(Make(3, {1, 1}, 3));
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_EQ(refused.message(), "the engine has failed: worker still lost");
  core_->Cancel(1);
  core_->Step();
  EXPECT_FALSE(core_->HasWork());
  EXPECT_EQ(executor_.resets, 2);
}

TEST_F(EngineCoreTest, ReportsItsFailureWithoutAnotherRequest) {
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

TEST_F(EngineCoreTest, ARequestSubmittedWhileTheEngineGivesUpEndsToo) {
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

TEST_F(EngineCoreTest, TimingsAddUpFromTheCallersSubmitToTheLastToken) {
  Start();
  executor_.on_wait = [this] { clock_.Advance(std::chrono::milliseconds(20)); };
  clock_.Advance(std::chrono::milliseconds(100));
  Arrival arrival = Make(1, std::vector<TokenId>(20, 1), 3);  // two steps of prefill
  arrival.submitted = clock_.Now() - std::chrono::milliseconds(7);
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();  // RunAll advances the clock by 1 ms before every step
  const RequestTimings& timings = results_[{1, 0}].timings;
  EXPECT_NEAR(timings.queued_seconds, 0.008, 1e-9);
  EXPECT_NEAR(timings.prefill_seconds, 0.041, 1e-9);
  EXPECT_NEAR(timings.decode_seconds, 0.042, 1e-9);
  EXPECT_EQ(timings.steps, 4);
  EXPECT_EQ(timings.preemptions, 0);
}

TEST_F(EngineCoreTest, TimingsCountThePreemptionsOfAllChoices) {
  Start();
  for (RequestId id = 1; id <= 2; ++id) {  // each needs 12 blocks at its end; there are 16
    Arrival arrival = Make(id, std::vector<TokenId>(6, static_cast<TokenId>(id)), 40);
    ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  }
  RunAll();
  const int64_t preemptions = core_->stats(clock_.Now()).preemptions;
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ((results_[{1, 0}].timings.preemptions), 0) << "the first ranks above the second";
  EXPECT_EQ((results_[{2, 0}].timings.preemptions), preemptions);
}

TEST_F(EngineCoreTest, LatenciesHaveOneEntryPerRequestAndPerTokenAfterTheFirst) {
  Start();
  Arrival two = Make(1, {1, 2, 3}, 5);
  two.sampling.n = 2;
  ASSERT_TRUE(core_->Submit(std::move(two)).ok());
  ASSERT_TRUE(core_->Submit(Make(2, {4, 5}, 1)).ok());
  ASSERT_TRUE(core_->Submit(Make(3, {6}, 30)).ok());
  for (int i = 0; i < 4; ++i) core_->Step();
  core_->Cancel(3);
  RunAll();
  ASSERT_TRUE(core_->Submit(Make(4, {7}, 30)).ok());
  core_->Cancel(4);  // before it runs
  RunAll();
  const EngineStats stats = core_->stats(clock_.Now());
  int64_t tokens = 0, gaps = 0;
  for (const auto& [id, result] : results_) {
    tokens += static_cast<int64_t>(result.tokens.size());
    gaps += std::max<int64_t>(0, static_cast<int64_t>(result.tokens.size()) - 1);
  }
  EXPECT_EQ(stats.generated_tokens, tokens);
  EXPECT_EQ(stats.inter_token.count(), gaps);
  EXPECT_EQ(stats.time_to_first_token.count(), 3);
  EXPECT_EQ(stats.queue_time.count(), 3);
  EXPECT_EQ(stats.prefill_time.count(), 3);
  EXPECT_EQ(stats.end_to_end.count(), 4);
  EXPECT_EQ(stats.ended_requests, (std::array<int64_t, 4>{0, 2, 2, 0}));
  EXPECT_EQ(stats.prompt_tokens, 7);
  EXPECT_EQ(stats.queried_prompt_tokens, 6);
}

TEST(LatencyHistogramTest, BoundsBelongToTheBucketBelow) {
  LatencyHistogram histogram;
  histogram.Observe(0.0005);
  histogram.Observe(0.00051);
  histogram.Observe(600);
  histogram.Observe(601);
  EXPECT_EQ(histogram.counts[0], 1);
  EXPECT_EQ(histogram.counts[1], 1);
  EXPECT_EQ(histogram.counts[25], 1);
  EXPECT_EQ(histogram.counts[26], 1);
  EXPECT_EQ(histogram.count(), 4);
}

TEST_F(EngineCoreTest, ZeroMaxTokensEndsAtOnce) {
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3}, 0)).ok());
  core_->Step();
  EXPECT_EQ(results_.at({1, 0}).reason, FinishReason::kLength);
  EXPECT_FALSE(core_->HasWork());
  EXPECT_TRUE(executor_.steps.empty());
}

TEST_F(EngineCoreTest, SeedsComeFromTheRequestOrDifferPerArrival) {
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
