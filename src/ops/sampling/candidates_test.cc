// The candidates of a row, compared with a few lines in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "ops/sampling/host_sampler.h"

namespace tokamak {
namespace {

constexpr int32_t kVocab = 70;
constexpr float kInf = std::numeric_limits<float>::infinity();

class FakeStream final : public Stream {};

class CandidatesTest : public ::testing::Test {
 protected:
  CandidatesTest()
      : pool_(2),
        sampler_(MakeHostSampler({.max_seqs = 2, .max_rows = 2, .vocab_size = kVocab}, &pool_)) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 2);
    for (float& x : logits_) x = normal(random);
  }

  // Slot 0 draws and slot 1 returns candidates.
  SampleResult Find(const SamplingParams& spec, int32_t count,
                    const std::vector<TokenMask>& masks = {}) {
    for (const SequenceSlotId slot : {0, 1}) sampler_->Admit(slot, spec, 0, history_, 2, stream_);
    std::vector<float> rows(logits_);
    rows.insert(rows.end(), logits_.begin(), logits_.end());
    std::vector<SampleResult> results(2);
    const auto position = static_cast<int32_t>(history_.size());
    sampler_->Sample(
        Tensor(rows.data(), DType::kF32, Shape{2, kVocab}),
        std::vector<SampleRow>{{.slot = 0, .position = position},
                               {.slot = 1, .position = position, .num_candidates = count}},
        masks, results, stream_);
    EXPECT_GE(results[0].token, 0);
    EXPECT_TRUE(results[0].candidates.empty());
    EXPECT_EQ(results[1].token, kNotDrawn);
    return results[1];
  }

  // Changes the logprobs with `edit` and returns the best ones.
  template <typename Edit>
  std::vector<TokenLogprobs::Entry> Expected(size_t count, Edit edit) const {
    double total = 0;
    for (const float x : logits_) total += std::exp(double{x});
    std::vector<double> logprobs;
    for (const float x : logits_) logprobs.push_back(double{x} - std::log(total));
    edit(logprobs);
    std::vector<TokenId> ids(kVocab);
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
      return logprobs[static_cast<size_t>(a)] > logprobs[static_cast<size_t>(b)];
    });
    std::vector<TokenLogprobs::Entry> best;
    for (const TokenId id : ids) {
      const double logprob = logprobs[static_cast<size_t>(id)];
      if (best.size() < count && logprob > -double{kInf}) {
        best.push_back({id, static_cast<float>(logprob)});
      }
    }
    return best;
  }

  static void ExpectNear(const std::vector<TokenLogprobs::Entry>& got,
                         const std::vector<TokenLogprobs::Entry>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].token_id, expected[i].token_id) << i;
      EXPECT_NEAR(got[i].logprob, expected[i].logprob, 2e-6) << i;
    }
  }

  std::vector<float> logits_ = std::vector<float>(kVocab);
  std::vector<TokenId> history_ = {3, 9, 9, 20, 31};  // two are the prompt
  FakeStream stream_;
  ThreadPool pool_;
  std::unique_ptr<Sampler> sampler_;
};

TEST_F(CandidatesTest, AreTheBestOfTheWholeVocabulary) {
  for (const int32_t count : {1, 24, kVocab, kVocab + 5}) {
    const auto none = [](std::vector<double>&) {};
    ExpectNear(Find({.temperature = 0}, count).candidates,
               Expected(static_cast<size_t>(count), none));
  }
  // Filters and the temperature have no part in them.
  EXPECT_EQ(Find({.temperature = 0.3f, .top_k = 2, .top_p = 0.5f, .seed = 1}, 24).candidates,
            Find({.temperature = 0}, 24).candidates);
}

// The normalization comes first, so penalties act on logprobs, which are negative.
TEST_F(CandidatesTest, ParametersChangeLogprobs) {
  const SamplingParams spec = {.temperature = 0,
                               .repetition_penalty = 1.5f,
                               .presence_penalty = 0.5f,
                               .frequency_penalty = 0.25f,
                               .logit_bias = {{7, 3.0f}},
                               .bad_words_ids = {{31, 40}, {20, 41}},
                               .min_tokens = 4,
                               .stop_token_ids = {12}};
  const auto edit = [](std::vector<double>& logprobs) {
    logprobs[7] += 3;
    for (const size_t token : {3u, 9u, 20u, 31u}) logprobs[token] *= 1.5;
    for (const size_t token : {9u, 20u, 31u}) logprobs[token] -= 0.75;
    logprobs[12] = logprobs[40] = -kInf;
  };
  ExpectNear(Find(spec, kVocab).candidates, Expected(kVocab, edit));
}

TEST_F(CandidatesTest, AMaskLeavesTheLogprobs) {
  TokenMask mask = {.slot = 1, .allowed = {1u << 5 | 1u << 30, 1u << 2, 1u << 5}};
  const auto edit = [](std::vector<double>& logprobs) {
    for (size_t t = 0; t < logprobs.size(); ++t) {
      if (t != 5 && t != 30 && t != 34 && t != 69) logprobs[t] = -kInf;
    }
  };
  ExpectNear(Find({.temperature = 0}, 10, {mask}).candidates, Expected(10, edit));
  mask.allowed = {0, 0, 0};
  EXPECT_EQ(Find({.temperature = 0}, 10, {mask}).health, RowHealth::kNoCandidate);
}

TEST_F(CandidatesTest, EqualOnesComeByIdAndImpossibleOnesNotAtAll) {
  std::fill(logits_.begin(), logits_.end(), 1.5f);
  for (TokenId t = 0; t < kVocab; t += 2) logits_[static_cast<size_t>(t)] = -kInf;
  const std::vector<TokenLogprobs::Entry> candidates = Find({.temperature = 0}, 50).candidates;
  ASSERT_EQ(candidates.size(), 35u);
  for (size_t i = 0; i < candidates.size(); ++i) {
    EXPECT_EQ(candidates[i].token_id, static_cast<TokenId>(2 * i + 1));
    EXPECT_NEAR(candidates[i].logprob, -std::log(35.0), 1e-6);
  }
}

TEST_F(CandidatesTest, RowsThatAreNotFiniteHaveNone) {
  for (const float bad : {kInf, std::numeric_limits<float>::quiet_NaN()}) {
    logits_[17] = bad;
    std::vector<float> row(logits_);
    std::vector<SampleResult> results(1);
    sampler_->Admit(0, {}, 0, history_, 2, stream_);
    sampler_->Sample(Tensor(row.data(), DType::kF32, Shape{1, kVocab}),
                     std::vector<SampleRow>{{.slot = 0, .position = 5, .num_candidates = 3}}, {},
                     results, stream_);
    EXPECT_EQ(results[0].health, RowHealth::kNotFinite);
    EXPECT_TRUE(results[0].candidates.empty());
  }
}

}  // namespace
}  // namespace tokamak
