// Tests how the scheduler uses time, priorities and memory, from the steps that it submits.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "base/testing/manual_clock.h"
#include "base/testing/sanitizers.h"
#include "engine/engine_core.h"
#include "engine/record.h"
#include "sim/fake_executor.h"

namespace tokamak::sim {
namespace {

class SchedulingTest : public ::testing::Test {
 protected:
  SchedulingTest() {
    ExecutorLimits& limits = executor_options_.limits;
    limits.cache.groups = {{CacheGroupKind::kFull, 16, 0}};
    limits.cache.num_device_blocks = 1000;
    limits.max_seqs = 16;
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
  void Submit(RequestId id, int32_t prompt, int32_t max_tokens, int32_t priority = 0, int32_t n = 1,
              const std::string& client = {}) {
    Arrival arrival;
    arrival.id = id;
    for (int32_t i = 0; i < prompt; ++i) {
      arrival.prompt.push_back(static_cast<TokenId>((id * 131 + i * 7) % 1000));
    }
    arrival.sampling.max_tokens = max_tokens;
    arrival.sampling.seed = id * kNumSalts;
    arrival.sampling.n = n;
    arrival.priority = priority;
    arrival.client = client;
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

// Measures the longest step in ms that streams see while a long prompt is prefilled.
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
      longest = std::max(longest, 1e3 * ToSeconds(clock_.Now() - before));
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
  EXPECT_LT(steps_.size() - from, 20u);  // at least 4 tokens per step beside 14 streams
  RunAll();
  for (const StepInput& step : steps_) EXPECT_LE(TokensOf(step), 12);
}

TEST_F(SchedulingTest, AFullEngineKeepsAllStreamsGoingWhileOthersWait) {
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
    for (const AdmitSequence& admit : step.admit) {
      EXPECT_EQ(admit.num_computed, admitted == 0 ? 0 : 99);
      ++admitted;
    }
  }
  EXPECT_EQ(admitted, 3);
}

TEST_F(SchedulingTest, AWholePromptMustFitBesideHigherRankedSequences) {
  executor_options_.limits.cache.num_device_blocks = 15;  // a prompt takes 4, its answer one more
  core_options_.max_step_tokens = 32;
  Start();
  for (RequestId id = 1; id <= 6; ++id) Submit(id, 64, 12);
  RunAll();
  EXPECT_EQ(core_->stats(clock_.Now()).preemptions, 0);
}

// Compares all tokens of a crowded run, and how many positions were computed.
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

TEST_F(SchedulingTest, APausedRequestHoldsNothingAndDrawsTheSameWhenItGoesOn) {
  core_options_.max_seqs = 2;
  Start();
  Submit(1, 100, 60, 0, 2);
  RunAll();
  const auto expected = std::exchange(tokens_, {});
  ended_.clear();
  Start();
  Submit(1, 100, 60, 0, 2);
  for (int i = 0; i < 20; ++i) core_->Step();
  core_->Pause(1);
  RunAll();  // until no work is left
  EXPECT_FALSE(core_->HasWork());
  EXPECT_LT((tokens_[{1, 0}].size()), 30u);
  clock_.Advance(std::chrono::hours(1));
  EngineStats stats = core_->stats(clock_.Now());
  EXPECT_EQ(stats.used_blocks, 0);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.paused, 1);
  EXPECT_EQ(stats.seconds_since_progress, 0) << "it looks stuck";
  // Meanwhile others have the whole engine.
  Submit(2, 2000, 10, 0, 2);
  RunAll();
  EXPECT_EQ(ended_, (std::vector<RequestId>{2, 2}));
  core_->Resume(1);
  RunAll();
  EXPECT_EQ(ended_, (std::vector<RequestId>{2, 2, 1, 1}));
  EXPECT_EQ((tokens_[{1, 0}]), (expected.at({1, 0})));
  EXPECT_EQ((tokens_[{1, 1}]), (expected.at({1, 1})));
  EXPECT_EQ(core_->stats(clock_.Now()).paused, 0);
  // A request that ends while it is paused.
  Submit(3, 10, 500);
  for (int i = 0; i < 5; ++i) core_->Step();
  core_->Pause(3);
  RunAll();
  core_->Cancel(3);
  RunAll();
  EXPECT_EQ(ended_.back(), 3u);
  EXPECT_EQ(core_->stats(clock_.Now()).paused, 0);
}

// Clients.

constexpr int kMostOthers = testing::kSanitized ? 3 : 30;

class ClientsTest : public SchedulingTest {
 protected:
  struct Shape {
    int32_t prompt = 0;
    int32_t tokens = 0;
  };
  struct Waits {
    double first_token_ms = 0;
    double end_ms = 0;
  };
  // `others` clients keep `streams` requests open each. Then another client sends one request at a
  // time. Returns the longest times of its requests.
  Waits LongestWaits(int others, int streams, const Shape& shape) {
    steps_.clear();
    tokens_.clear();
    ended_.clear();
    next_id_ = 1;
    core_options_.max_seqs = 8;
    core_options_.max_queue = 1000;
    Start();
    std::map<RequestId, std::string> open;
    const auto submit = [&](const std::string& client) {
      open[next_id_] = client;
      Submit(next_id_++, shape.prompt, shape.tokens, 0, 1, client);
    };
    for (int stream = 0; stream < streams; ++stream) {
      for (int c = 0; c < others; ++c) submit("other " + std::to_string(c));
    }
    const auto step = [&] {
      core_->Step();
      for (const RequestId id : std::exchange(ended_, {})) {
        const std::string client = open.extract(id).mapped();
        if (client != "one") submit(client);
      }
    };
    for (int i = 0; i < 300; ++i) step();
    Waits longest;
    for (int i = 0; i < 10; ++i) {
      const RequestId mine = next_id_;
      const TimePoint sent = clock_.Now();
      const auto waited = [&] { return 1e3 * ToSeconds(clock_.Now() - sent); };
      submit("one");
      while (tokens_[{mine, 0}].empty()) step();
      longest.first_token_ms = std::max(longest.first_token_ms, waited());
      while (open.contains(mine)) step();
      longest.end_ms = std::max(longest.end_ms, waited());
    }
    EXPECT_TRUE(verdict_.ok()) << verdict_.what();
    return longest;
  }
  // The bound must hold however many streams others have.
  void ExpectWaitsAtMostTwiceAsLong(const Shape& shape, int others) {
    const Waits with_one_each = LongestWaits(others, 1, shape);
    for (const int streams : {2, 20}) {
      SCOPED_TRACE(
          fmt::format("{} other clients with {} streams each, prompts of {} tokens, {} generated",
                      others, streams, shape.prompt, shape.tokens));
      const Waits waits = LongestWaits(others, streams, shape);
      EXPECT_LE(waits.first_token_ms, 2 * with_one_each.first_token_ms);
      // With more streams, more of the steps that it shares contain prompts.
      EXPECT_LE(waits.end_ms, 2.5 * with_one_each.end_ms);
    }
  }
  RequestId next_id_ = 1;
};

TEST_F(ClientsTest, AClientWaitsAtMostTwiceAsLongHoweverManyStreamsOthersHave) {
  for (const Shape& shape : {Shape{40, 120}, Shape{10, 5}, Shape{20, 600}, Shape{400, 10}}) {
    for (const int others : {1, 3, 12, 30}) {
      if (others <= kMostOthers) ExpectWaitsAtMostTwiceAsLong(shape, others);
    }
  }
}

TEST_F(ClientsTest, AClientWaitsAtMostTwiceAsLongWhenPreemptedStreamsRecompute) {
  core_options_.prefix_cache = false;
  for (const int others : {1, 12}) {
    if (others <= kMostOthers) ExpectWaitsAtMostTwiceAsLong(Shape{20, 600}, others);
  }
}

// Holds whether slots or blocks are lacking. A turn recomputes at most as much as it computes anew;
// the turn in which a stream ends may recompute the whole context on top.
TEST_F(ClientsTest, AClientRecomputesAtMostTwiceWhatItComputes) {
  struct Case {
    bool prefix_cache;
    int32_t max_seqs, num_blocks, streams;
  };
  for (const Case& c : {Case{false, 1, 1000, 1}, Case{false, 3, 1000, 2}, Case{true, 16, 300, 1}}) {
    SCOPED_TRACE(fmt::format("prefix cache {}, {} slots, {} blocks, {} streams each",
                             c.prefix_cache, c.max_seqs, c.num_blocks, c.streams));
    core_options_.prefix_cache = c.prefix_cache;
    core_options_.max_seqs = c.max_seqs;
    executor_options_.limits.cache.num_device_blocks = c.num_blocks;
    steps_.clear();
    Start();
    RequestId id = 1;
    for (const char* client : {"a", "b"}) {
      for (int stream = 0; stream < c.streams; ++stream) Submit(id++, 100, 4000, 0, 1, client);
    }
    RunAll();
    EXPECT_GT(core_->stats(clock_.Now()).preemptions, 2);
    int64_t computed = 0;
    for (const StepInput& step : steps_) computed += TokensOf(step);
    EXPECT_LE(computed, 3 * int64_t{2 * c.streams * (100 + 4000)});
  }
}

TEST_F(ClientsTest, ClientsThatAlwaysWaitGetEqualTokens) {
  core_options_.max_seqs = 8;
  Start();
  RequestId id = 1;
  for (; id <= 100; ++id) Submit(id, 20, 300, 0, 1, "many");
  for (; id <= 200; ++id) Submit(id, 200, 60, 0, 1, "long prompts");
  for (int i = 0; i < 2000; ++i) core_->Step();
  int64_t computed[2] = {};
  for (const auto& [key, tokens] : tokens_) {
    const bool second = key.first > 100;
    if (!tokens.empty())
      computed[second] += static_cast<int64_t>(tokens.size()) + (second ? 200 : 20);
  }
  // A client may be ahead by a turn of each of its sequences, of which at most 8 run.
  const int64_t most_ahead = 8 * int64_t{core_options_.quantum};
  EXPECT_LE(std::abs(computed[0] - computed[1]), most_ahead)
      << computed[0] << " and " << computed[1];
  EXPECT_GT(computed[0], 2 * most_ahead) << "too few for the bound to mean anything";
}

TEST_F(ClientsTest, SlotsAreTakenFromTheClientWithTheMostService) {
  core_options_.max_seqs = 4;
  Start();
  for (RequestId id = 1; id <= 4; ++id) Submit(id, 10, 400, 0, 1, "many");
  for (int i = 0; i < 20; ++i) core_->Step();
  Submit(5, 10, 5, 0, 1, "one");
  for (int i = 0; tokens_[{5, 0}].empty(); ++i) {
    ASSERT_LT(i, 5) << "it gets a slot at once";
    core_->Step();
  }
  EXPECT_EQ(core_->stats(clock_.Now()).preemptions, 1);
  RunAll();
  EXPECT_EQ(ended_, (std::vector<RequestId>{5, 1, 2, 3, 4}));
}

TEST_F(ClientsTest, ClientsWithOneStreamEachAlternateWhenSlotsAreShort) {
  core_options_.max_seqs = 1;
  core_options_.quantum = 50;
  Start();
  Submit(1, 10, 500, 0, 1, "a");
  Submit(2, 10, 500, 0, 1, "b");
  for (int i = 0; i < 400; ++i) core_->Step();
  const auto a = static_cast<int>(tokens_[{1, 0}].size());
  const auto b = static_cast<int>(tokens_[{2, 0}].size());
  EXPECT_LE(std::abs(a - b), 60) << a << " and " << b;
  EXPECT_GT(std::min(a, b), 100);
  RunAll();
}

// A long single stream earns no credit: afterwards its client shares like any other.
TEST_F(ClientsTest, ClientsThatTookLessThanTheirShareGetNoCredit) {
  core_options_.max_seqs = 8;
  Start();
  RequestId id = 1;
  Submit(id++, 10, 3000, 0, 1, "modest");
  for (; id <= 60; ++id) Submit(id, 10, 300, 0, 1, "greedy");
  for (int i = 0; i < 800; ++i) core_->Step();
  for (; id <= 100; ++id) Submit(id, 10, 300, 0, 1, "modest");
  const int64_t before = core_->stats(clock_.Now()).generated_tokens;
  int64_t modest = 0;
  for (const auto& [key, tokens] : tokens_) {
    if (key.first == 1 || key.first > 60) modest -= static_cast<int64_t>(tokens.size());
  }
  for (int i = 0; i < 400; ++i) core_->Step();
  for (const auto& [key, tokens] : tokens_) {
    if (key.first == 1 || key.first > 60) modest += static_cast<int64_t>(tokens.size());
  }
  const int64_t all = core_->stats(clock_.Now()).generated_tokens - before;
  EXPECT_NEAR(static_cast<double>(modest) / static_cast<double>(all), 0.5, 0.1);
}

TEST_F(ClientsTest, ASingleClientIsScheduledAsWithoutClients) {
  std::vector<std::vector<StepInput>> runs;
  for (const int32_t quantum : {1, 7, 256, 1 << 30}) {
    core_options_.max_seqs = 4;
    core_options_.max_step_tokens = 24;
    core_options_.quantum = quantum;
    executor_options_.limits.cache.num_device_blocks = 16;
    steps_.clear();
    ended_.clear();
    Start();
    for (RequestId id = 1; id <= 12; ++id) Submit(id, 30, 40, id % 5 == 0 ? 1 : 0, id % 3 ? 1 : 2);
    RunAll();
    EXPECT_GT(core_->stats(clock_.Now()).preemptions, 0);
    runs.push_back(steps_);
  }
  for (const auto& run : runs) {
    ASSERT_EQ(run.size(), runs.back().size());
    for (size_t i = 0; i < run.size(); ++i) {
      EXPECT_EQ(Digest(run[i]), Digest(runs.back()[i])) << "step " << i;
    }
  }
}

// A pipeline, as deep as it needs to be.
class PipelineTest : public SchedulingTest {
 protected:
  void StartStages(int32_t stages) {
    executor_options_.limits.stages = stages;
    executor_options_.limits.depth = stages + 1;
    executor_options_.step_seconds = 1e-3 * stages;  // 1 ms on each stage
    executor_options_.token_seconds = 0;
    Start();
  }
  double RunMs() {
    const TimePoint start = clock_.Now();
    RunAll();
    return 1e3 * ToSeconds(clock_.Now() - start);
  }
};

// Each stage computes a step at any time, and the steps are equal.
TEST_F(PipelineTest, NoStageWaits) {
  StartStages(3);
  for (RequestId id = 1; id <= 6; ++id) Submit(id, 8, 100);
  EXPECT_LT(RunMs(), 1.05 * 100 * 3);  // 6 prompts in a step, then 2 rows in each
  const auto even = [](const StepInput& step) { return step.rows.size() == 2; };
  EXPECT_GT(std::count_if(steps_.begin(), steps_.end(), even), 290);
}

// A prompt's chunks follow each other from stage to stage.
TEST_F(PipelineTest, ChunksOfAPromptOverlap) {
  executor_options_.limits.max_context = 12000;
  StartStages(4);
  Submit(1, 40 * 256, 1);
  EXPECT_LT(RunMs(), 45);
  EXPECT_EQ(steps_.size(), 40u);
}

// Fewer sequences than stages: each goes on as soon as its token is known.
TEST_F(PipelineTest, ASequenceAloneTakesOneStepAtATime) {
  StartStages(3);
  Submit(1, 8, 50);
  EXPECT_NEAR(RunMs(), 50 * 3, 1);
  EXPECT_EQ(steps_.size(), 50u);
}

// Sequences of one token, again and again, at depth 2.
class DraftsAtDepthTwo : public SchedulingTest {
 protected:
  DraftsAtDepthTwo() {
    executor_options_.limits.depth = 2;
    executor_options_.limits.max_step_drafts = 64;
    executor_options_.model.usual = 1;
    core_options_.drafts.most = 4;
    core_options_.drafts.min_match = 1;
  }
  static bool Drafts(const StepInput& step) {
    return std::any_of(step.rows.begin(), step.rows.end(),
                       [](const StepRow& row) { return !row.drafts.empty(); });
  }
};

TEST_F(DraftsAtDepthTwo, AloneASequenceDraftsInManySteps) {
  Start();
  Submit(1, 40, 400);
  RunAll();
  const auto drafting = std::count_if(steps_.begin(), steps_.end(), Drafts);
  EXPECT_GT(drafting, static_cast<std::ptrdiff_t>(steps_.size()) / 3);
  EXPECT_LT(steps_.size(), 330u);  // 400 tokens
}

// Beside two that draft, one whose text does not repeat: it never draws the usual tokens.
class DraftsBesideOthers : public DraftsAtDepthTwo {
 protected:
  void RunBesideOne() {
    Start();
    Submit(1, 40, 400);
    Submit(2, 40, 400);
    Arrival arrival;
    arrival.id = 3;
    arrival.prompt = {1, 2, 3};
    arrival.sampling.max_tokens = arrival.sampling.min_tokens = 250;
    arrival.sampling.seed = 9 * kNumSalts;
    arrival.sampling.stop_token_ids = {0, 1};
    arrival.speculate = !core_options_.drafts.from_model;
    ASSERT_TRUE(core_->Submit(std::move(arrival)).ok());
    RunAll();
    int32_t drafting = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      drafting += Drafts(steps_[i]) ? 1 : 0;
      if (!HasSlot(steps_[i], 2)) continue;
      ++num_with_third_;
      num_steps_ = static_cast<int32_t>(i) + 1;
      num_drafting_ = drafting;
    }
  }
  static bool HasSlot(const StepInput& step, SequenceSlotId slot) {
    return std::any_of(step.rows.begin(), step.rows.end(),
                       [slot](const StepRow& row) { return row.slot == slot; });
  }
  // Until the third has ended.
  int32_t num_steps_ = 0, num_drafting_ = 0, num_with_third_ = 0;
};

TEST_F(DraftsBesideOthers, OnlyThoseThatDraftMissSteps) {
  RunBesideOne();
  EXPECT_GT(num_drafting_, num_steps_ / 5);
  EXPECT_LE(num_drafting_, num_steps_ / 2 + 2);
  EXPECT_GT(num_with_third_, num_steps_ * 9 / 10);
}

TEST_F(DraftsBesideOthers, TwoStepsMustGiveMoreTokensWithDraftsThanWithout) {
  executor_options_.model.usual = 2;  // a draft is right about every second time
  RunBesideOne();
  EXPECT_LT(num_drafting_, num_steps_ / 4);
}

// A draft model's proposals must make up for the steps that the rows miss which want them.
class ProposalsBesideOthers : public DraftsBesideOthers {
 protected:
  ProposalsBesideOthers() { core_options_.drafts.from_model = true; }
  int64_t NumWanting() const {
    return std::count_if(steps_.begin(), steps_.end(), [](const StepInput& step) {
      return std::any_of(step.rows.begin(), step.rows.end(),
                         [](const StepRow& row) { return row.num_proposals > 0; });
    });
  }
};

TEST_F(ProposalsBesideOthers, AreWantedInEverySecondStep) {
  core_options_.drafts.most = 8;
  RunBesideOne();
  EXPECT_GT(num_drafting_, num_steps_ / 4);
  EXPECT_LE(num_drafting_, num_steps_ / 2 + 2);
}

TEST_F(ProposalsBesideOthers, AreNotWantedIfTheyCannotMakeUpForIt) {
  core_options_.drafts.most = 1;  // as many tokens in one step as without drafts in two
  RunBesideOne();
  EXPECT_EQ(num_drafting_, 0);
}

}  // namespace
}  // namespace tokamak::sim
