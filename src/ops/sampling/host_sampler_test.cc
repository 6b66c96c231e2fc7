#include "ops/sampling/host_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/testing/sanitizers.h"

namespace tokamak {
namespace {

constexpr int32_t kVocab = 48;

class FakeStream final : public Stream {};

// A sampler with a slot per row, and the logits of its calls.
class Bench {
 public:
  explicit Bench(int32_t slots, int32_t vocab = kVocab, int threads = 1)
      : pool_(threads),
        vocab_(vocab),
        sampler_(
            MakeHostSampler({.max_seqs = slots, .max_rows = slots, .vocab_size = vocab}, &pool_)) {}

  void Admit(SequenceSlotId slot, const SamplingParams& spec,
             const std::vector<TokenId>& tokens = {0}, int32_t num_prompt = 1, int32_t choice = 0) {
    sampler_->Admit(slot, spec, choice, tokens, num_prompt, stream_);
  }
  std::vector<SampleResult> Sample(std::vector<float> logits, const std::vector<SampleRow>& rows,
                                   const std::vector<TokenMask>& masks = {}) {
    std::vector<SampleResult> results(logits.size() / static_cast<size_t>(vocab_));
    sampler_->Sample(Rows(logits), rows, masks, results, stream_);
    return results;
  }
  SampleResult SampleOne(const std::vector<float>& logits, int32_t position = 1,
                         const std::vector<TokenMask>& masks = {}) {
    return Sample(logits, {{.slot = 0, .position = position}}, masks)[0];
  }
  std::vector<SampleResult> Score(std::vector<float> logits, const std::vector<TokenId>& tokens,
                                  int32_t top) {
    std::vector<SampleResult> results(tokens.size());
    sampler_->Score(Rows(logits), tokens, top, results, stream_);
    return results;
  }
  Sampler& sampler() { return *sampler_; }
  Stream& stream() { return stream_; }

 private:
  Tensor Rows(std::vector<float>& logits) const {
    return Tensor(logits.data(), DType::kF32,
                  Shape{static_cast<int64_t>(logits.size()) / vocab_, vocab_});
  }

  FakeStream stream_;
  ThreadPool pool_;
  int32_t vocab_;
  std::unique_ptr<Sampler> sampler_;
};

std::vector<float> RandomLogits(size_t count, uint32_t seed, float scale = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

// A given (logits, key) draws the same token on every backend and forever: a draft and its target
// rely on it. Computed with a few lines of Python (math.log, math.log1p).
TEST(HostSampler, DrawsTheseTokens) {
  Bench bench(1);
  bench.Admit(0, {.seed = 1234}, {0}, 1, /*choice=*/1);
  std::vector<TokenId> drawn;
  for (int32_t position = 1; position <= 12; ++position) {
    drawn.push_back(bench.SampleOne(std::vector<float>(kVocab, 0.5f), position).token);
  }
  EXPECT_EQ(drawn, (std::vector<TokenId>{23, 21, 46, 41, 17, 36, 18, 28, 46, 1, 33, 27}));
}

TEST(HostSampler, GreedyTakesTheLowestIdAmongTheBest) {
  Bench bench(1);
  bench.Admit(0, {.temperature = 0});
  std::vector<float> logits(kVocab, -1.0f);
  logits[20] = logits[9] = logits[33] = 4.0f;
  EXPECT_EQ(bench.SampleOne(logits).token, 9);
  EXPECT_EQ(bench.SampleOne(std::vector<float>(kVocab, 0.0f)).token, 0);
  logits.assign(kVocab, -INFINITY);
  logits[40] = -5;
  EXPECT_EQ(bench.SampleOne(logits).token, 40);
}

TEST(HostSampler, ExtremeTemperaturesStayDefined) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const float temperature : {1e-45f, 1e-6f, 1e6f, kMax}) {
    Bench bench(1);
    bench.Admit(0, {.temperature = temperature, .seed = 3});
    Bench dynamic(1);
    dynamic.Admit(0, {.temperature = temperature, .dynatemp_range = temperature, .seed = 3});
    std::vector<float> sure(kVocab, -INFINITY);
    sure[7] = 2;
    EXPECT_EQ(dynamic.SampleOne(sure).token, 7);
    const std::vector<float> logits = RandomLogits(kVocab, 5);
    const SampleResult result = bench.SampleOne(logits);
    EXPECT_EQ(result.health, RowHealth::kOk);
    if (temperature < 1) {
      EXPECT_EQ(result.token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    std::vector<float> wide(kVocab, -kMax);
    wide[3] = kMax;
    EXPECT_EQ(bench.SampleOne(wide).health, RowHealth::kOk);
  }
}

TEST(HostSampler, PenaltiesFollowTheDrawnTokens) {
  Bench bench(1);
  bench.Admit(0, {.temperature = 0, .presence_penalty = 0.5f, .frequency_penalty = 0.25f});
  std::vector<float> logits(kVocab, -10.0f);
  logits[5] = 2.0f;
  logits[6] = 1.5f;
  // Token 5 has 2, then 1.25 after one occurrence and 1.0 after two; token 6 has 1.5, then 0.75.
  std::vector<TokenId> drawn;
  for (int32_t position = 1; position <= 5; ++position) {
    drawn.push_back(bench.SampleOne(logits, position).token);
  }
  EXPECT_EQ(drawn, (std::vector<TokenId>{5, 6, 5, 5, 5}));
}

TEST(HostSampler, MinTokensHoldsBackStopIds) {
  Bench bench(1);
  bench.Admit(0, {.temperature = 0, .min_tokens = 2, .stop_token_ids = {4}}, {1, 2, 3}, 3);
  std::vector<float> logits(kVocab, 0.0f);
  logits[4] = 9;
  EXPECT_EQ(bench.SampleOne(logits, 3).token, 0);
  EXPECT_EQ(bench.SampleOne(logits, 4).token, 0);
  EXPECT_EQ(bench.SampleOne(logits, 5).token, 4);
}

TEST(HostSampler, MaskLimitsItsRowAlone) {
  Bench bench(2);
  bench.Admit(0, {.temperature = 0});
  bench.Admit(1, {.temperature = 0});
  const std::vector<float> row = RandomLogits(kVocab, 8);
  std::vector<float> logits = row;
  logits.insert(logits.end(), row.begin(), row.end());
  const auto results =
      bench.Sample(logits, {{0, 1}, {1, 1}}, {{.slot = 1, .allowed = {uint32_t{1} << 13, 0}}});
  EXPECT_EQ(results[0].token, std::max_element(row.begin(), row.end()) - row.begin());
  EXPECT_EQ(results[1].token, 13);
}

TEST(HostSampler, ARowWithNothingToDrawFailsAlone) {
  Bench bench(2);
  bench.Admit(0, {.logprobs = 2});
  bench.Admit(1, {});
  const auto results =
      bench.Sample(RandomLogits(2 * kVocab, 9), {{0, 1}, {1, 1}}, {{.slot = 0, .allowed = {0, 0}}});
  EXPECT_EQ(results[0].health, RowHealth::kNoCandidate);
  EXPECT_EQ(results[0].token, 0);
  EXPECT_TRUE(results[0].logprobs.top.empty());
  EXPECT_EQ(results[1].health, RowHealth::kOk);
}

TEST(HostSampler, ARowThatIsNotFiniteFailsAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float temperature : {0.0f, 1.0f}) {
    for (const float bad : {nan, -nan, INFINITY}) {
      Bench bench(2);
      bench.Admit(0, {.temperature = temperature});
      bench.Admit(1, {.temperature = temperature});
      std::vector<float> logits = RandomLogits(2 * kVocab, 10);
      logits[30] = bad;
      const auto results = bench.Sample(logits, {{0, 1}, {1, 1}});
      EXPECT_EQ(results[0].health, RowHealth::kNotFinite);
      EXPECT_EQ(results[1].health, RowHealth::kOk);
      EXPECT_EQ(bench.Score(logits, {1, 1}, 0)[0].health, RowHealth::kNotFinite);
      EXPECT_EQ(bench.Score(logits, {1, 1}, 0)[1].health, RowHealth::kOk);
    }
  }
  Bench bench(1);
  bench.Admit(0, {});
  EXPECT_EQ(bench.SampleOne(std::vector<float>(kVocab, -INFINITY)).health, RowHealth::kNotFinite);
}

TEST(HostSampler, IsGreedyIfOnlyTheLargestLogitMatters) {
  const auto is_greedy = [](const SamplingParams& spec, int32_t position = 3) {
    Bench bench(1);
    bench.Admit(0, spec, {0, 1});
    return bench.sampler().IsGreedy({.slot = 0, .position = position});
  };
  EXPECT_TRUE(is_greedy({.temperature = 0}));
  EXPECT_TRUE(is_greedy({.temperature = 0, .top_k = 5, .top_p = 0.5f, .seed = 3}));
  EXPECT_FALSE(is_greedy({.temperature = 0.5f}));
  EXPECT_FALSE(is_greedy({.temperature = 0, .repetition_penalty = 1.5f}));
  EXPECT_FALSE(is_greedy({.temperature = 0, .presence_penalty = 0.5f}));
  EXPECT_FALSE(is_greedy({.temperature = 0, .frequency_penalty = 0.5f}));
  EXPECT_FALSE(is_greedy({.temperature = 0, .logit_bias = {{2, 1.0f}}}));
  EXPECT_FALSE(is_greedy({.temperature = 0, .logprobs = 0}));
  const SamplingParams at_least = {.temperature = 0, .min_tokens = 2, .stop_token_ids = {4}};
  EXPECT_FALSE(is_greedy(at_least, 2));
  EXPECT_TRUE(is_greedy(at_least, 3));
}

TEST(HostSampler, SampleGreedyDrawsTheArgmax) {
  Bench bench(3);
  for (SequenceSlotId slot = 0; slot < 3; ++slot) bench.Admit(slot, {.temperature = 0});
  std::vector<float> values = {1.5f, NAN, -INFINITY};
  std::vector<TokenId> ids = {7, 8, 9};
  std::vector<SampleResult> results(3);
  const std::vector<SampleRow> rows = {
      {.slot = 2, .position = 1}, {.slot = 0, .position = 1}, {.slot = 1, .position = 1}};
  bench.sampler().SampleGreedy({.values = Tensor(values.data(), DType::kF32, Shape{3}),
                                .ids = Tensor(ids.data(), DType::kI32, Shape{3})},
                               rows, results, bench.stream());
  EXPECT_EQ(results[0].health, RowHealth::kOk);
  EXPECT_EQ(results[0].token, 7);
  EXPECT_EQ(results[1].health, RowHealth::kNotFinite);
  EXPECT_EQ(results[1].token, 0);
  EXPECT_EQ(results[2].health, RowHealth::kNotFinite);
  std::vector<TokenId> next = {-1, -1, -1};
  const std::vector<TokenFill> fills = {{.slot = 2, .index = 0}, {.slot = 0, .index = 2}};
  bench.sampler().FillTokens(Tensor(next.data(), DType::kI32, Shape{3}), fills, bench.stream());
  EXPECT_EQ(next, (std::vector<TokenId>{7, -1, 0}));
}

// Logprobs are those of the raw logits in sorted order, whatever else changes the draw.
TEST(HostSampler, LogprobsAreThoseOfTheRawLogits) {
  const std::vector<float> logits = RandomLogits(kVocab, 12, 5);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  const auto logprob = [&](TokenId t) { return logits[static_cast<size_t>(t)] - std::log(sum); };
  std::vector<TokenId> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const SamplingParams spec = {.temperature = 2.0f,
                               .top_k = 30,
                               .repetition_penalty = 1.5f,
                               .presence_penalty = 1.0f,
                               .logit_bias = {{order[0], -3.0f}, {order[40], 9.0f}},
                               .logprobs = 20};
  Bench bench(1);
  bench.Admit(0, spec, {order[0], order[1]}, 1);
  for (int32_t position = 2; position < 40; ++position) {
    const SampleResult result = bench.SampleOne(logits, position);
    EXPECT_EQ(result.logprobs.token.token_id, result.token);
    EXPECT_NEAR(result.logprobs.token.logprob, logprob(result.token), 2e-6);
    ASSERT_EQ(result.logprobs.top.size(), 20u);
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(result.logprobs.top[i].token_id, order[i]);
      EXPECT_NEAR(result.logprobs.top[i].logprob, logprob(order[i]), 2e-6);
    }
  }
  const auto scored = bench.Score(logits, {order[47]}, 3);
  EXPECT_NEAR(scored[0].logprobs.token.logprob, logprob(order[47]), 3e-6);
  EXPECT_EQ(scored[0].logprobs.top.size(), 3u);
}

TEST(HostSampler, ResultsDoNotDependOnBatchOrderOrThreads) {
  const std::vector<SamplingParams> kinds = {
      {},
      {.temperature = 0.3f, .dynatemp_range = 0.2f, .top_n_sigma = 1.5f},
      {.temperature = 5.0f, .typical_p = 0.7f},
      {.top_k = 7, .xtc_probability = 0.5f},
      {.top_p = 0.8f},
      {.top_k = 9, .min_p = 0.05f, .repeat_last_n = 4},
      {.temperature = 1.5f, .top_k = 20, .top_p = 0.9f, .min_p = 0.02f, .typical_p = 0.9f}};
  constexpr int kRows = 40;
  constexpr int32_t kWide = 5000;
  std::mt19937 random(13);
  std::vector<SamplingParams> specs;
  for (int i = 0; i < kRows; ++i) {
    SamplingParams spec = kinds[random() % kinds.size()];
    spec.seed = random();
    const auto logprobs = static_cast<int32_t>(random() % 4) - 1;
    if (logprobs >= 0) spec.logprobs = logprobs;
    if (i % 3 == 0) spec.frequency_penalty = 0.3f;
    specs.push_back(spec);
  }
  const std::vector<float> logits = RandomLogits(kRows * kWide, 14, 3);
  const auto row_of = [&](int i) {
    return std::vector<float>(logits.begin() + i * kWide, logits.begin() + (i + 1) * kWide);
  };
  std::vector<SampleResult> alone;
  for (int i = 0; i < kRows; ++i) {
    Bench bench(1, kWide);
    bench.Admit(0, specs[static_cast<size_t>(i)]);
    alone.push_back(bench.SampleOne(row_of(i), 5 + i));
  }
  for (const int threads : {1, 2, 3}) {
    std::vector<int> order(kRows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Bench bench(kRows, kWide, threads);
    std::vector<float> shuffled;
    std::vector<SampleRow> rows;
    for (const int i : order) {
      bench.Admit(i, specs[static_cast<size_t>(i)]);
      rows.push_back({.slot = i, .position = 5 + i});
      const std::vector<float> row = row_of(i);
      shuffled.insert(shuffled.end(), row.begin(), row.end());
    }
    const auto together = bench.Sample(shuffled, rows);
    for (size_t j = 0; j < order.size(); ++j) {
      const SampleResult& expected = alone[static_cast<size_t>(order[j])];
      EXPECT_EQ(together[j].token, expected.token);
      EXPECT_EQ(together[j].logprobs, expected.logprobs);
    }
  }
}

// A slot draws with drafts what it draws one by one, up to the first draft that is wrong.
TEST(HostSampler, DrawsBehindDraftsAsOneByOne) {
  const SamplingParams spec = {.temperature = 0.9,
                               .repetition_penalty = 1.4,
                               .frequency_penalty = 0.5,
                               .seed = 3,
                               .logprobs = 2};
  constexpr int kDraws = 5;
  const std::vector<float> logits = RandomLogits(kDraws * kVocab, 21);
  Bench alone(1);
  alone.Admit(0, spec);
  std::vector<SampleResult> expected;
  for (int i = 0; i < kDraws; ++i) {
    const auto row = logits.begin() + i * kVocab;
    expected.push_back(alone.SampleOne({row, row + kVocab}, 1 + i));
  }
  for (int wrong = 0; wrong < kDraws; ++wrong) {  // the last time, none is
    std::vector<TokenId> drafts;
    for (int i = 0; i + 1 < kDraws; ++i) {
      drafts.push_back((expected[static_cast<size_t>(i)].token + (i == wrong ? 1 : 0)) % kVocab);
    }
    Bench bench(2);
    bench.Admit(0, spec);
    bench.Admit(1, spec);
    std::vector<float> rows = RandomLogits(kVocab, 22);  // of the other slot
    rows.insert(rows.end(), logits.begin(), logits.end());
    const auto results = bench.Sample(
        rows, {{.slot = 1, .position = 1}, {.slot = 0, .position = 1, .drafts = drafts}});
    for (int i = 0; i < kDraws; ++i) {
      const SampleResult& result = results[static_cast<size_t>(i) + 1];
      const SampleResult& draw = expected[static_cast<size_t>(i)];
      EXPECT_EQ(result.token, i <= wrong ? draw.token : kNotDrawn) << wrong << " " << i;
      EXPECT_EQ(result.logprobs, i <= wrong ? draw.logprobs : TokenLogprobs());
    }
    // The history has the drawn tokens alone.
    std::vector<TokenId> next = {0};
    bench.sampler().FillTokens(Tensor(next.data(), DType::kI32, Shape{1}),
                               std::vector<TokenFill>{{.slot = 0, .index = 0}}, bench.stream());
    EXPECT_EQ(next[0], expected[static_cast<size_t>(wrong)].token);
    if (wrong + 1 == kDraws) continue;
    const auto row = logits.begin() + (wrong + 1) * kVocab;
    EXPECT_EQ(bench.SampleOne({row, row + kVocab}, 2 + wrong).token,
              expected[static_cast<size_t>(wrong) + 1].token);
  }
}

TEST(HostSampler, EachDrawBehindADraftHasItsMask) {
  Bench bench(2);
  bench.Admit(0, {.temperature = 0});
  bench.Admit(1, {.temperature = 0});
  const std::vector<float> logits = RandomLogits(4 * kVocab, 23);
  const auto only = [](SequenceSlotId slot, int32_t draw, TokenId token) {
    TokenMask mask = {.slot = slot, .draw = draw, .allowed = {0, 0}};
    mask.allowed[static_cast<size_t>(token) / 32] = uint32_t{1} << token % 32;
    return mask;
  };
  const std::vector<TokenId> drafts = {13, 40};
  const std::vector<SampleRow> rows = {{.slot = 1, .position = 1},
                                       {.slot = 0, .position = 1, .drafts = drafts}};
  // Masks come in any order.
  auto results =
      bench.Sample(logits, rows, {only(0, 2, 7), only(0, 0, 13), only(1, 0, 3), only(0, 1, 40)});
  EXPECT_EQ(results[0].token, 3);
  EXPECT_EQ(results[1].token, 13);
  EXPECT_EQ(results[2].token, 40);
  EXPECT_EQ(results[3].token, 7);
  // The second draft is not what its mask allows.
  results =
      bench.Sample(logits, rows, {only(1, 0, 3), only(0, 0, 13), only(0, 1, 41), only(0, 2, 7)});
  EXPECT_EQ(results[2].token, 41);
  EXPECT_EQ(results[3].token, kNotDrawn);
  // A later draw that has nothing to draw is not drawn.
  TokenMask nothing = only(0, 1, 0);
  nothing.allowed = {0, 0};
  results = bench.Sample(logits, rows, {only(1, 0, 3), only(0, 0, 13), nothing, only(0, 2, 7)});
  EXPECT_EQ(results[1].token, 13);
  EXPECT_EQ(results[2].token, kNotDrawn);
  EXPECT_EQ(results[2].health, RowHealth::kOk);
}

TEST(HostSampler, AcceptsSyntheticallyWhateverTheLogitsSay) {
  ThreadPool pool(1);
  const auto sampler = MakeHostSampler(
      {.max_seqs = 1, .max_rows = 3, .vocab_size = kVocab, .synthetic_acceptance = 0.7f}, &pool);
  Bench bench(1);  // for its stream
  sampler->Admit(0, {.temperature = 0}, 0, std::vector<TokenId>{0}, 1, bench.stream());
  const std::vector<TokenId> drafts = {kVocab - 1, 5};
  int accepted[2] = {};
  constexpr int kRows = 2000;
  for (int i = 0; i < kRows; ++i) {
    std::vector<float> logits(3 * kVocab, 0.0f);
    std::vector<SampleResult> results(3);
    sampler->Sample(Tensor(logits.data(), DType::kF32, Shape{3, kVocab}),
                    std::vector<SampleRow>{{.slot = 0, .position = 1 + 3 * i, .drafts = drafts}},
                    {}, results, bench.stream());
    for (size_t draw = 0; draw < 2 && results[draw].token == drafts[draw]; ++draw) {
      ++accepted[draw];
    }
  }
  // The standard deviations are about 0.01.
  EXPECT_NEAR(accepted[0] / double{kRows}, 0.7, 0.04);
  EXPECT_NEAR(accepted[1] / static_cast<double>(accepted[0]), 0.7, 0.05);
}

TEST(HostSampler, ALaterDrawThatIsNotFiniteIsNotDrawn) {
  Bench bench(1);
  bench.Admit(0, {.temperature = 0});
  std::vector<float> logits(2 * kVocab, 0.0f);
  logits[17] = 1;
  logits[kVocab + 3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<TokenId> drafts = {17};
  const auto results = bench.Sample(logits, {{.slot = 0, .position = 1, .drafts = drafts}});
  EXPECT_EQ(results[0].token, 17);
  EXPECT_EQ(results[0].health, RowHealth::kOk);
  EXPECT_EQ(results[1].token, kNotDrawn);
  EXPECT_EQ(results[1].health, RowHealth::kOk);
}

TEST(HostSampler, NothingIsDrawnBehindABadFirstRow) {
  Bench bench(1);
  bench.Admit(0, {.temperature = 0});
  std::vector<float> logits(2 * kVocab, 0.0f);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<TokenId> drafts = {0};
  const auto results = bench.Sample(logits, {{.slot = 0, .position = 1, .drafts = drafts}});
  EXPECT_EQ(results[0].health, RowHealth::kNotFinite);
  EXPECT_EQ(results[1].token, kNotDrawn);
}

TEST(HostSampler, FillsInTheLastDrawnToken) {
  Bench bench(3);
  for (SequenceSlotId slot = 0; slot < 3; ++slot) bench.Admit(slot, {.temperature = 0});
  std::vector<float> logits(2 * kVocab, 0.0f);
  logits[17] = 1;
  logits[kVocab + 29] = 1;
  bench.Sample(logits, {{2, 1}, {0, 1}});
  std::vector<TokenId> ids = {7, -1, 8, -1};
  const std::vector<TokenFill> fills = {{.slot = 0, .index = 1}, {.slot = 2, .index = 3}};
  bench.sampler().FillTokens(Tensor(ids.data(), DType::kI32, Shape{4}), fills, bench.stream());
  EXPECT_EQ(ids, (std::vector<TokenId>{7, 29, 8, 17}));
}

}  // namespace
}  // namespace tokamak
