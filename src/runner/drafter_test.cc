#include "runner/drafter.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "runner/joined_cache.h"
#include "runner/runner.h"
#include "runner/testing/driver.h"
#include "runner/testing/queued_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

constexpr RunnerMemory kMemory = {
    .arena_bytes = 32 << 20, .num_device_blocks = 3000, .num_host_blocks = 3000};
constexpr int32_t kContext = 200;

// Random requests of any temperature, with penalties and filters, some with a common prefix, some
// with masks.
std::vector<DriverRequest> RandomRequests(int count, int32_t vocab) {
  std::mt19937_64 random(5);
  const auto below = [&random](int32_t end) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(end));
  };
  std::vector<TokenId> prefix(60);
  for (TokenId& token : prefix) token = below(vocab);
  std::vector<DriverRequest> requests;
  for (int i = 0; i < count; ++i) {
    DriverRequest request;
    if (below(2) == 0) request.prompt.assign(prefix.begin(), prefix.begin() + 1 + below(60));
    for (int32_t more = 1 + below(50); more > 0; --more) request.prompt.push_back(below(vocab));
    SamplingParams& sampling = request.sampling;
    sampling.seed = random();
    sampling.temperature = static_cast<float>(below(4)) / 2;
    if (below(3) == 0) sampling.top_k = 1 + below(20);
    if (below(3) == 0) sampling.repetition_penalty = 1.5f;
    if (below(3) == 0) sampling.frequency_penalty = 1.0f;
    if (below(4) == 0) sampling.logit_bias = {{below(vocab), 3.0f}};
    if (below(4) == 0) {
      sampling.min_tokens = 8;
      sampling.stop_token_ids = {1, 2, 3, 4, 5};
    }
    if (below(2) == 0) sampling.logprobs = below(4);
    if (below(5) == 0) sampling.prompt_logprobs = 0;
    request.num_generated = below(40);
    request.choice = below(2);
    if (below(6) == 0) request.allowed.assign((static_cast<size_t>(vocab) + 31) / 32, 0x5555);
    requests.push_back(std::move(request));
  }
  return requests;
}

class DrafterTest : public ::testing::Test {
 protected:
  explicit DrafterTest(bool queued = false) {
    auto made = MakeCpuOps({.threads = 2});
    CHECK(made.ok());
    ops_ = *std::move(made);
    if (queued) {
      ops_ = MakeQueuedOps(
          std::move(ops_), 11,
          {.on_draw = [this](auto) { ++num_drawn_; }, .on_launch = [this] { ++num_launched_; }});
    }
    model_ = MakeToyModel(*ops_);
    requests_ = RandomRequests(40, model_->spec().vocab_size);
  }

  std::unique_ptr<Runner> MakeRunner(const Model* draft, float min_probability = 0, int depth = 1) {
    const RunnerShape shape = {.max_seqs = 12,
                               .max_step_tokens = 64,
                               .max_step_drafts = 16,
                               .draft_min_probability = min_probability,
                               .max_context = kContext,
                               .block_size = 4,
                               .depth = depth};
    auto runner = Runner::Create(*model_, *ops_, shape, kMemory, draft);
    CHECK_MSG(runner.ok(), runner.status().ToString());
    return *std::move(runner);
  }

  // Drives random schedules with this draft model, in which no answer may change.
  DriverCounts Drive(const Model& draft, float min_probability = 0, int depth = 1) {
    const auto expected =
        testing::Drive(*MakeRunner(nullptr), requests_, {.max_concurrent = 1, .chunk = 64});
    const auto runner = MakeRunner(&draft, min_probability, depth);
    DriverCounts total;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      DriverCounts counts;
      const auto results = testing::Drive(*runner, requests_,
                                          {.seed = seed,
                                           .max_concurrent = static_cast<int32_t>(3 * seed),
                                           .chunk = 32,
                                           .random_chunks = seed % 2 == 0,
                                           .recompute = 0.1,
                                           .swap = 0.2,
                                           .share = 0.7,
                                           .proposals = 5},
                                          &counts);
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i].tokens, expected[i].tokens) << "request " << i << ", seed " << seed;
        EXPECT_EQ(results[i].logprobs, expected[i].logprobs) << "request " << i;
        EXPECT_EQ(results[i].prompt_logprobs, expected[i].prompt_logprobs) << "request " << i;
      }
      total.swapped += counts.swapped;
      total.shared += counts.shared;
      total.recomputed += counts.recomputed;
      total.accepted += counts.accepted;
      total.refused += counts.refused;
    }
    EXPECT_GT(total.recomputed, 10);
    EXPECT_GT(total.swapped, 10);
    EXPECT_GT(total.shared, 10);
    return total;
  }

  // On the queued backend: steps and graphs.
  int num_drawn_ = 0, num_launched_ = 0;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::vector<DriverRequest> requests_;
};

// Its logits have the same bits, and a draw depends on nothing else, so that a single wrong key in
// the draft model's cache shows as a refused draft.
TEST_F(DrafterTest, AModelThatDraftsForItselfIsAlwaysRight) {
  const auto draft = MakeToyModel(*ops_);
  for (const int depth : {1, 2, 4}) {
    const DriverCounts counts = Drive(*draft, 0, depth);
    EXPECT_GT(counts.accepted, 500) << depth;
    EXPECT_EQ(counts.refused, 0) << depth;
  }
}

// On a backend that delays its work, as a GPU does.
class QueuedDrafterTest : public DrafterTest {
 protected:
  QueuedDrafterTest() : DrafterTest(/*queued=*/true) {}
};

TEST_F(QueuedDrafterTest, AModelThatDraftsForItselfIsAlwaysRight) {
  const auto draft = MakeToyModel(*ops_);
  for (const int depth : {1, 2, 4}) {
    const DriverCounts counts = Drive(*draft, 0, depth);
    EXPECT_GT(counts.accepted, 500) << depth;
    EXPECT_EQ(counts.refused, 0) << depth;
  }
}

TEST_F(QueuedDrafterTest, SamplingDoesNotWaitForTheDrawsBeforeProposals) {
  const auto draft = MakeToyModel(*ops_);
  const auto runner = MakeRunner(draft.get());
  const std::vector<BlockId> blocks[] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
                                         {10, 11, 12, 13, 14, 15, 16, 17, 18, 19}};
  StepInput step = {.admit = {{.slot = 0, .tokens = {7, 8, 9}, .num_prompt_tokens = 3}},
                    .append = {{.slot = 0, .group = 0, .blocks = blocks[0]},
                               {.slot = 0, .group = 1, .blocks = blocks[1]}},
                    .rows = {{.slot = 0, .num_tokens = 3, .sample = true, .num_proposals = 2}}};
  int num_waiting = 0;
  for (; step.number < 10; ++step.number) {
    ASSERT_TRUE(runner->Submit(step).ok());
    ASSERT_TRUE(runner->Sample(step.number).ok());
    num_waiting += num_drawn_ == static_cast<int>(step.number) ? 1 : 0;
    const Result<StepOutput> output = runner->Wait(step.number);
    ASSERT_TRUE(output.ok()) << output.status().ToString();
    EXPECT_EQ(output->rows[0].tokens.size(), step.rows[0].drafts.size() + 1);
    ASSERT_EQ(output->rows[0].proposals.size(), 2u);
    step = {.number = step.number,
            .rows = {{.slot = 0,
                      .num_tokens = 3,
                      .sample = true,
                      .drafts = output->rows[0].proposals,
                      .num_proposals = 2}}};
  }
  EXPECT_GT(num_waiting, 3);
  EXPECT_EQ(num_launched_, 9 + 10 * 2);  // all passes but the prompt's
}

TEST_F(QueuedDrafterTest, AnotherModelChangesNoAnswer) {
  const auto draft = MakeToyModel(*ops_, {.vocab_size = 80, .window = 0, .seed = 2});
  const DriverCounts counts = Drive(*draft, 0.02f, 2);
  EXPECT_GT(counts.accepted, 10);
  EXPECT_GT(counts.refused, 200);
}

TEST_F(QueuedDrafterTest, AnUnlikelyProposalEndsTheDrafts) {
  const auto draft = MakeToyModel(*ops_);
  const DriverCounts some = Drive(*draft, 0.2f, 2);
  EXPECT_GT(some.accepted, 10);
  EXPECT_LT(some.accepted, Drive(*draft, 0, 2).accepted / 2);
  EXPECT_EQ(some.refused, 0);
  EXPECT_EQ(Drive(*draft, 1.1f).accepted, 0);
}

TEST_F(DrafterTest, AnotherModelChangesNoAnswer) {
  // Larger and smaller vocabularies: the rest of each is padding.
  for (const int32_t vocab_size : {80, 112}) {
    const auto draft = MakeToyModel(*ops_, {.vocab_size = vocab_size, .window = 0, .seed = 2});
    const DriverCounts counts = Drive(*draft, 0, vocab_size == 80 ? 1 : 3);
    EXPECT_GT(counts.accepted, 10);
    EXPECT_GT(counts.refused, 500);
  }
}

TEST_F(DrafterTest, DraftsEndWhereTheDraftModelsContextEnds) {
  const auto whole = Drive(*MakeToyModel(*ops_));
  const auto draft = MakeToyModel(*ops_, {.max_context = 60});
  const DriverCounts counts = Drive(*draft);
  EXPECT_GT(counts.accepted, 50);
  EXPECT_LT(counts.accepted, whole.accepted * 3 / 4);
  EXPECT_EQ(counts.refused, 0);
}

TEST_F(DrafterTest, AnUnlikelyProposalEndsTheDrafts) {
  const auto draft = MakeToyModel(*ops_);
  const int64_t all = Drive(*draft).accepted;
  const DriverCounts some = Drive(*draft, 0.2f);
  EXPECT_GT(some.accepted, 10);
  EXPECT_LT(some.accepted, all / 2);
  EXPECT_EQ(Drive(*draft, 1.1f).accepted, 0);
}

TEST_F(DrafterTest, ADraftModelThatIsNotFiniteProposesNothing) {
  std::vector<TokenId> prompt = {7, 8, 9};
  const auto draft = MakeToyModel(*ops_, {.poison = 8});
  const auto runner = MakeRunner(draft.get());
  DriverCounts counts;
  const auto results = testing::Drive(
      *runner, {{.prompt = prompt, .sampling = {.temperature = 0}, .num_generated = 20}},
      {.proposals = 4}, &counts);
  EXPECT_EQ(results[0].tokens.size(), 20u);
  EXPECT_EQ(counts.accepted + counts.refused, 0);
}

TEST_F(DrafterTest, RefusesProposalsWithoutADraftModelOrBlocks) {
  const auto draft = MakeToyModel(*ops_);
  StepInput step = {
      .admit = {{.slot = 0, .tokens = {7, 8, 9}, .num_prompt_tokens = 3}},
      .append = {{.slot = 0, .group = 0, .blocks = {0}}, {.slot = 0, .group = 1, .blocks = {1}}},
      .rows = {{.slot = 0, .num_tokens = 3, .sample = true, .num_proposals = 1}}};
  EXPECT_TRUE(MakeRunner(draft.get())->Submit(step).ok());
  EXPECT_EQ(MakeRunner(nullptr)->Submit(step).message(),
            "step 0: a step wants 1 proposals, but there can be at most 0");
  step.rows[0].num_proposals = 2;
  EXPECT_EQ(MakeRunner(draft.get())->Submit(step).message(),
            "step 0: rows: proposals of slot 0: the block table of group 0 has 1 blocks, but "
            "positions below 5 need 2");
  step.rows[0] = {.slot = 0, .num_tokens = 2, .num_proposals = 1};
  EXPECT_EQ(MakeRunner(draft.get())->Submit(step).message(),
            "step 0: rows: slot 0 wants 1 proposals behind position 1, but its row does not "
            "sample");
}

TEST(JoinCaches, ADraftModelsLayersJoinTheGroupThatKeepsTheirPositions) {
  const nn::CacheLayout::Group full = {}, window = {CacheGroupKind::kWindow, 8},
                               wider = {CacheGroupKind::kWindow, 16};
  const auto layout = [](std::vector<nn::CacheLayout::Group> groups) {
    nn::CacheLayout cache{.groups = std::move(groups), .layers = {}};
    for (size_t g = 0; g < cache.groups.size(); ++g) {
      cache.layers.push_back({.group = static_cast<int32_t>(g), .num_kv_heads = 1});
    }
    return cache;
  };
  const nn::CacheLayout draft = layout({window, full, wider});
  const JoinedCache both = JoinCaches(layout({full, window}), &draft);
  EXPECT_EQ(both.draft_groups, (std::vector<int32_t>{1, 0, 0}));
  ASSERT_EQ(both.cache.groups.size(), 2u);
  ASSERT_EQ(both.cache.layers.size(), 5u);
  EXPECT_EQ(both.cache.layers[4].group, 0);
  // Positions that a window drops are missing for a full group, and for a wider window.
  const JoinedCache none = JoinCaches(layout({window}), &draft);
  EXPECT_EQ(none.draft_groups, (std::vector<int32_t>{0, 1, 1}));
  ASSERT_EQ(none.cache.groups.size(), 2u);
  EXPECT_EQ(none.cache.groups[1].kind, CacheGroupKind::kFull);
  EXPECT_TRUE(JoinCaches(draft, nullptr).draft_groups.empty());
}

}  // namespace
}  // namespace tokamak::testing
