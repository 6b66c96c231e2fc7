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
        if (out.tokens[0] == bad_token) {
          out.health = bad_health;
          out.tokens.clear();
        }
      }
      output.rows.push_back(out);
    }
    steps.push_back(step);
    outputs_[step.number] = output;
    return Status();
  }
  Status Sample(uint64_t, std::vector<TokenMask>) override { return Status(); }
  bool Done(uint64_t) override { return false; }
  Result<StepOutput> Wait(uint64_t number) override {
    if (on_wait) on_wait();
    return outputs_.at(number);
  }
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
  TokenId bad_token = -1;  // comes with bad_health instead
  RowHealth bad_health = RowHealth::kNotFinite;
  std::function<void()> on_wait;
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
  RequestTimings timings;
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
      c.timings = chunk.timings;
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

TEST_F(EngineCoreTest, CountsTheBytesOfTheCacheThatWindowsLetAttentionRead) {
  executor_.limits_.cache.groups.push_back({CacheGroupKind::kWindow, 4, 3});
  executor_.limits_.cache.block_bytes = 40;  // 10 for a position in each group
  Start();
  ASSERT_TRUE(core_->Submit(Make(1, {1, 2, 3, 4, 5, 6}, 3)).ok());
  RunAll();
  // Six positions in both groups; then one that sees 7, or 3 through the window; then 8, or 3.
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

TEST_F(EngineCoreTest, AFullQueueHasAShareForEveryClient) {
  EngineCoreOptions options;
  options.max_queue = 6;
  Start(options);
  RequestId id = 1;
  // How many of its requests are taken before one is refused.
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

TEST_F(EngineCoreTest, ARowThatCannotGoOnEndsItsRequestAndNoOther) {
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

TEST_F(EngineCoreTest, RefusesMinTokensThatLeaveNoTokenToGenerate) {
  Start();
  Arrival arrival = Make(1, {1, 2, 3}, 5);
  arrival.sampling.min_tokens = 2;
  for (TokenId id = 0; id < 99; ++id) arrival.sampling.stop_token_ids.push_back(id);
  arrival.sampling.stop_token_ids.push_back(98);
  arrival.eos_ids = {98, 100, -1};  // some tokenizers know more ids than their model
  EXPECT_TRUE(core_->Check(arrival).ok());
  arrival.eos_ids = {99};
  const Status status = core_->Check(arrival);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("min_tokens: 2 leaves no token to generate: all 100"))
      << status.ToString();
  arrival.sampling.ignore_eos = true;
  EXPECT_TRUE(core_->Check(arrival).ok());
  arrival.sampling.stop_token_ids.push_back(99);
  EXPECT_FALSE(core_->Check(arrival).ok());
  arrival.sampling.min_tokens = 0;
  EXPECT_TRUE(core_->Check(arrival).ok());
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

TEST_F(EngineCoreTest, TimingsAddUpFromTheCallersSubmitToTheLastToken) {
  Start();
  executor_.on_wait = [this] { clock_.Advance(std::chrono::milliseconds(20)); };
  clock_.Advance(std::chrono::milliseconds(100));
  Arrival arrival = Make(1, std::vector<TokenId>(20, 1), 3);  // two steps of prefill
  arrival.submitted = clock_.Now() - std::chrono::milliseconds(7);
  ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  RunAll();  // 1 ms before every step
  const RequestTimings& timings = results_[{1, 0}].timings;
  EXPECT_NEAR(timings.queued_seconds, 0.008, 1e-9);
  EXPECT_NEAR(timings.prefill_seconds, 0.041, 1e-9);
  EXPECT_NEAR(timings.decode_seconds, 0.042, 1e-9);
  EXPECT_EQ(timings.steps, 4);
  EXPECT_EQ(timings.preemptions, 0);
}

TEST_F(EngineCoreTest, TimingsCountThePreemptionsOfAllChoices) {
  Start();
  for (RequestId id = 1; id <= 2; ++id) {  // 12 blocks each when they end; there are 16
    Arrival arrival = Make(id, std::vector<TokenId>(6, static_cast<TokenId>(id)), 40);
    ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
  }
  RunAll();
  const int64_t preemptions = core_->stats(clock_.Now()).preemptions;
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ((results_[{1, 0}].timings.preemptions), 0) << "the first ranks above the second";
  EXPECT_EQ((results_[{2, 0}].timings.preemptions), preemptions);
}

// What a snapshot's map says, by character; '1' to '9' as '#'.
std::map<char, int32_t> CountMap(const EngineSnapshot& snapshot) {
  std::map<char, int32_t> counts;
  for (const char c : snapshot.blocks.map) ++counts['1' <= c && c <= '9' ? '#' : c];
  return counts;
}

TEST_F(EngineCoreTest, TheMapOfASnapshotCountsWhatTheStatisticsCount) {
  Start();
  const std::vector<TokenId> prompt(9, 1);  // two whole blocks, and a token
  ASSERT_TRUE(core_->Submit(Make(1, prompt, 8)).ok());
  core_->Step();
  core_->Step();
  ASSERT_TRUE(core_->Submit(Make(2, prompt, 4)).ok());
  bool shared = false, cached = false;
  for (int i = 0; i < 20; ++i) {
    core_->Step();
    const EngineSnapshot snapshot = core_->Snapshot(clock_.Now(), 1000);
    const EngineStats stats = core_->stats(clock_.Now());
    std::map<char, int32_t> counts = CountMap(snapshot);
    EXPECT_EQ(snapshot.blocks.map.size(), 16u);
    EXPECT_EQ(counts['#'], snapshot.blocks.referenced);
    EXPECT_EQ(counts['c'], snapshot.blocks.cached);
    EXPECT_EQ(counts['.'], snapshot.blocks.free);
    EXPECT_EQ(snapshot.blocks.referenced, stats.used_blocks);
    EXPECT_EQ(snapshot.blocks.cached, stats.cached_blocks);
    EXPECT_EQ(snapshot.blocks.total, stats.total_blocks);
    EXPECT_EQ(snapshot.stats.generated_tokens, stats.generated_tokens);
    const auto twos = std::count(snapshot.blocks.map.begin(), snapshot.blocks.map.end(), '2');
    EXPECT_EQ(twos, stats.running == 2 ? 2 : 0) << "whole blocks of the prompt, with two readers";
    shared |= stats.running == 2;
    cached |= counts['c'] > 0;
  }
  EXPECT_TRUE(shared && cached);
}

TEST_F(EngineCoreTest, ASnapshotTellsOfSequencesAndOfTheLastRequests) {
  Start();
  clock_.Advance(std::chrono::seconds(5));
  Arrival first = Make(1, {1, 2, 3, 4, 5, 6}, 10);
  first.label = "call-1";
  first.priority = 3;
  ASSERT_TRUE(core_->Submit(std::move(first)).ok());
  core_->Step();
  clock_.Advance(std::chrono::seconds(2));
  core_->Step();
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(core_->Submit(Make(2, {1, 2}, 1)).ok());
  core_->Step();
  const EngineSnapshot snapshot = core_->Snapshot(clock_.Now(), 1000);
  ASSERT_EQ(snapshot.sequences.size(), 1u);
  const EngineSnapshot::Sequence& sequence = snapshot.sequences[0];
  EXPECT_EQ(sequence.request, "call-1");
  EXPECT_EQ(sequence.state, EngineSnapshot::State::kRunning);
  EXPECT_EQ(sequence.prompt_tokens, 6);
  EXPECT_EQ(sequence.output_tokens, 3);
  EXPECT_EQ(sequence.computed_tokens, 8);
  EXPECT_EQ(sequence.priority, 3);
  EXPECT_EQ(sequence.blocks, 2);
  EXPECT_DOUBLE_EQ(sequence.age_seconds, 3);
  ASSERT_EQ(snapshot.requests.size(), 2u);
  EXPECT_EQ(snapshot.requests[0].id, "call-1");
  EXPECT_FALSE(snapshot.requests[0].end);
  EXPECT_FALSE(snapshot.requests[0].ended);
  EXPECT_DOUBLE_EQ(snapshot.requests[0].arrived, 997);
  EXPECT_EQ(snapshot.requests[1].id, "2");
  EXPECT_EQ(snapshot.requests[1].end, FinishReason::kLength);
  EXPECT_DOUBLE_EQ(*snapshot.requests[1].ended, 1000);
}

TEST_F(EngineCoreTest, ASnapshotKeepsTheLast64Requests) {
  Start();
  for (RequestId id = 1; id <= 100; ++id) {
    ASSERT_TRUE(core_->Submit(Make(id, {static_cast<TokenId>(id % 100)}, 1)).ok());
    RunAll();
  }
  const EngineSnapshot snapshot = core_->Snapshot(clock_.Now(), 0);
  ASSERT_EQ(snapshot.requests.size(), 64u);
  EXPECT_EQ(snapshot.requests.front().id, "37");
  EXPECT_EQ(snapshot.requests.back().id, "100");
}

TEST_F(EngineCoreTest, TheTreeOfASnapshotHasANodePerRunOfBlocks) {
  Start();
  const auto run = [&](RequestId id, std::vector<TokenId> prompt) {
    ASSERT_TRUE(core_->Submit(Make(id, std::move(prompt), 1)).ok());
    RunAll();
  };
  run(1, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 9});  // blocks 1, 2, 3
  const EngineSnapshot one = core_->Snapshot(clock_.Now(), 0);
  ASSERT_EQ(one.tree.size(), 2u);
  EXPECT_EQ(one.tree[0].id, 0);
  EXPECT_EQ(one.tree[0].parent, -1);
  EXPECT_EQ(one.tree[1].parent, 0);
  EXPECT_EQ(one.tree[1].blocks, 3);
  clock_.Advance(std::chrono::seconds(4));
  run(2, {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 9});  // branches after 1, 2
  const EngineSnapshot two = core_->Snapshot(clock_.Now(), 0);
  ASSERT_EQ(two.tree.size(), 4u);
  EXPECT_EQ(two.num_tree_blocks, 4);
  EXPECT_FALSE(two.tree_truncated);
  EXPECT_EQ(two.tree[1].id, one.tree[1].id) << "the run begins with the same block";
  EXPECT_EQ(two.tree[1].blocks, 2);
  for (const size_t leaf : {2, 3}) {
    EXPECT_EQ(two.tree[leaf].parent, two.tree[1].id);
    EXPECT_EQ(two.tree[leaf].blocks, 1);
    EXPECT_EQ(two.tree[leaf].readers, 0);
  }
  // Children come in the order of their content: 3 was last used 4 s before 4 was.
  EXPECT_GE(two.tree[2].age_seconds, 4);
  EXPECT_LT(two.tree[3].age_seconds, 1);
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
  core_->Cancel(4);  // before it ran
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
