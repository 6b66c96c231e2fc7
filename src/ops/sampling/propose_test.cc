// Tests Sampler::Propose of the sampler for logits in host memory.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "ops/sampling/host_sampler.h"

namespace tokamak {
namespace {

constexpr int32_t kVocab = 48;

class FakeStream final : public Stream {};

// A sampler with one slot.
class Bench {
 public:
  explicit Bench(const SamplingParams& params)
      : pool_(1),
        sampler_(MakeHostSampler({.max_seqs = 1, .max_rows = 1, .vocab_size = kVocab}, &pool_)) {
    sampler_->Admit(0, params, 0, std::vector<TokenId>{5, 6}, 1, stream_);
  }

  TokenId Sample(std::vector<float> logits, int32_t position) {
    const SampleRow row = {.slot = 0, .position = position};
    SampleResult result;
    sampler_->Sample(Row(logits), {&row, 1}, {}, {&result, 1}, stream_);
    return result.token;
  }
  TokenId Propose(std::vector<float> logits, int32_t position,
                  const std::vector<TokenId>& earlier = {}, float min_probability = 0) {
    const ProposalRow row = {.slot = 0, .position = position, .earlier = earlier};
    TokenId token = 0;
    sampler_->Propose(Row(logits), {&row, 1}, min_probability, {&token, 1}, stream_);
    return token;
  }

 private:
  static Tensor Row(std::vector<float>& logits) {
    return Tensor(logits.data(), DType::kF32, Shape{1, static_cast<int64_t>(logits.size())});
  }

  FakeStream stream_;
  ThreadPool pool_;
  std::unique_ptr<Sampler> sampler_;
};

std::vector<float> RandomLogits(size_t count) {
  std::mt19937 random(21);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

// Proposals for the same logits are what the slot draws one after another, and leave no trace.
TEST(Propose, GivesWhatWouldBeDrawn) {
  const SamplingParams with_penalties = {.temperature = 0.9f,
                                         .top_k = 20,
                                         .repetition_penalty = 1.4f,
                                         .presence_penalty = 0.7f,
                                         .frequency_penalty = 0.5f,
                                         .seed = 3};
  for (const SamplingParams& spec : {with_penalties, SamplingParams{.temperature = 0, .seed = 4},
                                     SamplingParams{.temperature = 2, .min_p = 0.01f, .seed = 5}}) {
    constexpr int kDraws = 6;
    const std::vector<float> logits = RandomLogits(kDraws * kVocab);
    const auto row = [&logits](int i) {
      const auto begin = logits.begin() + i * kVocab;
      return std::vector<float>(begin, begin + kVocab);
    };
    Bench alone(spec), bench(spec);
    for (int start = 0; start < kDraws; ++start) {
      std::vector<TokenId> proposed;
      for (int i = start; i < kDraws; ++i) {
        proposed.push_back(bench.Propose(row(i), 2 + i, proposed));
      }
      // The others are refused: it has drawn only the first.
      EXPECT_EQ(alone.Sample(row(start), 2 + start), proposed[0]) << start;
      EXPECT_EQ(bench.Sample(row(start), 2 + start), proposed[0]) << start;
    }
  }
}

TEST(Propose, GivesOnlyTokensOfTheVocabularyThatAreLikelyEnough) {
  Bench bench({.temperature = 0});
  std::vector<float> logits(kVocab + 8, 0.0f);
  logits[kVocab + 3] = 9;
  logits[17] = 2;
  EXPECT_EQ(bench.Propose(logits, 1), 17);
  logits.resize(kVocab - 8);
  logits[17] = 3;
  const double likelihood = std::exp(3.0) / (std::exp(3.0) + kVocab - 9);
  EXPECT_EQ(bench.Propose(logits, 1, {}, static_cast<float>(likelihood) - 0.001f), 17);
  EXPECT_EQ(bench.Propose(logits, 1, {}, static_cast<float>(likelihood) + 0.001f), kNotDrawn);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(bench.Propose(logits, 1), kNotDrawn);
}

}  // namespace
}  // namespace tokamak
