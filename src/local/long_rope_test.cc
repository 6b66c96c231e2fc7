// Tests answers that begin within a model's original context and end beyond it. From there on all
// keys are rotated with the long factors (LongRoPE), so earlier keys are invalid. The reference
// recomputes everything for every token.
#include <gtest/gtest.h>

#include <future>
#include <utility>
#include <vector>

#include "local/testing/load_engine.h"
#include "models/testing/golden.h"
#include "tokamak/engine.h"

namespace tokamak {
namespace {

constexpr int kOriginalContext = 64;
constexpr int kBlockSize = 4;

EngineOptions Options() {
  return {.model = tokamak::testing::GoldenPath("hf/phi3_long"),
          .device = "cpu",
          .precise = true,
          .threads = 2,
          .max_seqs = 8,
          .max_batch_tokens = 32,
          .block_size = kBlockSize,
          .num_blocks = 400};
}

struct Response {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  Usage usage;
  RequestTimings timings;
};

// If `go` is given, the callback waits for it at the first token.
std::future<Response> Submit(Engine& engine, std::vector<int32_t> prompt, int max_tokens,
                             const std::shared_future<void>& go = {}) {
  Request request;
  request.token_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 0;
  auto state = std::make_shared<std::pair<Response, std::promise<Response>>>();
  std::future<Response> answer = state->second.get_future();
  const auto id = engine.Submit(std::move(request), [state, go](const OutputChunk& chunk) {
    if (go.valid()) go.wait();
    Response& so_far = state->first;
    so_far.tokens.insert(so_far.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    for (const TokenLogprobs& token : chunk.logprobs) {
      so_far.logprobs.push_back(token.token.logprob);
    }
    so_far.usage = chunk.usage;
    so_far.timings = chunk.timings;
    if (chunk.finish_reason) state->second.set_value(so_far);
  });
  EXPECT_TRUE(id.ok()) << id.status().ToString();
  return answer;
}

class LongRopeTest : public ::testing::Test {
 protected:
  // The golden's prompt and the first `count` tokens of its answer.
  std::vector<int32_t> Begin(size_t count) const {
    std::vector<int32_t> tokens = golden_.prompt;
    const auto begin = golden_.tokens.begin();
    tokens.insert(tokens.end(), begin, begin + static_cast<ptrdiff_t>(count));
    return tokens;
  }
  std::vector<int32_t> Rest(size_t count) const {
    return {golden_.tokens.begin() + static_cast<ptrdiff_t>(count), golden_.tokens.end()};
  }
  int RestLength(size_t count) const { return static_cast<int>(golden_.tokens.size() - count); }

  const tokamak::testing::GoldenGreedy golden_ =
      tokamak::testing::ReadTinyGolden("hf/phi3_switch").greedy;
};

TEST_F(LongRopeTest, AnswersBeyondTheOriginalContextEqualTheReference) {
  ASSERT_LT(golden_.prompt.size(), kOriginalContext);
  ASSERT_GT(golden_.prompt.size() + golden_.tokens.size(), kOriginalContext);
  for (const int steps_in_flight : {1, 2, 4}) {
    for (const int batch_tokens : {6, 200}) {
      EngineOptions options = Options();
      options.steps_in_flight = steps_in_flight;
      options.max_batch_tokens = batch_tokens;
      const auto engine = Load(options);
      EXPECT_EQ(Submit(*engine, Begin(0), RestLength(0)).get().tokens, Rest(0))
          << steps_in_flight << " steps, " << batch_tokens << " tokens";
    }
  }
}

TEST_F(LongRopeTest, CachedPrefixesServeOnlySequencesWithTheSameFactors) {
  const auto engine = Load(Options());
  Submit(*engine, Begin(0), RestLength(0)).get();
  // Cached parts of the answer: the blocks before the switch, and all blocks after it.
  for (const size_t count : {5, 23, 24, 25, 26, 40}) {
    const std::vector<int32_t> prompt = Begin(count);
    const Response answer = Submit(*engine, prompt, RestLength(count)).get();
    EXPECT_EQ(answer.tokens, Rest(count)) << count;
    EXPECT_GE(answer.usage.cached_tokens, static_cast<int32_t>(prompt.size()) - kBlockSize);
    EngineOptions options = Options();
    options.prefix_cache = false;
    const Response fresh = Submit(*Load(options), prompt, RestLength(count)).get();
    EXPECT_EQ(answer.logprobs, fresh.logprobs) << count;
  }
}

TEST_F(LongRopeTest, PreemptionAndOtherRequestsChangeNoBit) {
  const auto alone = Load(Options());
  EngineOptions options = Options();
  options.num_blocks = 100;  // each would like about 26
  const auto crowded = Load(options);
  std::promise<void> all_submitted;
  const std::shared_future<void> go = all_submitted.get_future().share();
  std::vector<std::future<Response>> answers;
  std::vector<size_t> counts = {0, 10, 20, 24, 25, 30, 3, 17};
  for (const size_t count : counts) {
    // Distinct prompts, so that nothing is shared.
    std::vector<int32_t> prompt = Begin(count);
    prompt[0] = static_cast<int32_t>(count);
    answers.push_back(Submit(*crowded, prompt, 50, go));
  }
  all_submitted.set_value();
  int preemptions = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    std::vector<int32_t> prompt = Begin(counts[i]);
    prompt[0] = static_cast<int32_t>(counts[i]);
    const Response answer = answers[i].get();
    const Response expected = Submit(*alone, prompt, 50).get();
    EXPECT_EQ(answer.tokens, expected.tokens) << i;
    EXPECT_EQ(answer.logprobs, expected.logprobs) << i;
    preemptions += answer.timings.preemptions;
    EXPECT_EQ(expected.timings.preemptions, 0);  // a switch does not count as one
  }
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace tokamak
