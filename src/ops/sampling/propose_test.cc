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
        sampler_(MakeHostSampler(
            {.max_seqs = 1, .max_rows = 1, .vocab_size = kVocab, .max_proposals = 8}, &pool_)) {
    sampler_->Admit(0, params, 0, std::vector<TokenId>{5, 6}, 1, stream_);
  }

  TokenId Sample(std::vector<float> logits, int32_t position) {
    const SampleRow row = {.slot = 0, .position = position};
    SampleResult result;
    sampler_->Sample(Row(logits), {&row, 1}, {}, {&result, 1}, stream_);
    return result.token;
  }
  TokenId Propose(std::vector<float> logits, int32_t position, int32_t number = 0,
                  double min_probability = 0) {
    const ProposalRow row = {.slot = 0, .position = position};
    SampleResult result;
    sampler_->Propose(Row(logits), {&row, 1}, number, std::log(min_probability), {&result, 1},
                      stream_);
    return result.token;
  }
  // Returns the token of a model's input that a proposal fills.
  TokenId Fill(int32_t number) {
    TokenId tokens[] = {-7, -7};
    const TokenFill fill = {.slot = 0, .index = 1};
    sampler_->FillProposals(Tensor(tokens, DType::kI32, Shape{2}), {&fill, 1}, number, stream_);
    EXPECT_EQ(tokens[0], -7);
    return tokens[1];
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
      Bench drawing(spec);
      for (int i = 0; i < start; ++i) (void)drawing.Sample(row(i), 2 + i);
      for (int i = start; i < kDraws; ++i) {
        const TokenId proposed = bench.Propose(row(i), 2 + i, i - start);
        EXPECT_EQ(drawing.Sample(row(i), 2 + i), proposed) << start << " " << i;
        EXPECT_EQ(bench.Fill(i - start), proposed);
      }
      // The others are refused: it draws only the first.
      EXPECT_EQ(bench.Sample(row(start), 2 + start), alone.Sample(row(start), 2 + start)) << start;
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
  EXPECT_EQ(bench.Propose(logits, 1, 0, likelihood - 0.001), 17);
  EXPECT_EQ(bench.Propose(logits, 2, 1, likelihood + 0.001), kNotDrawn);
  EXPECT_EQ(bench.Fill(1), 0);
  // Nothing is behind it, until proposals begin again.
  EXPECT_EQ(bench.Propose(logits, 3, 2), kNotDrawn);
  EXPECT_EQ(bench.Propose(logits, 1, 0), 17);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(bench.Propose(logits, 1), kNotDrawn);
}

}  // namespace
}  // namespace tokamak
