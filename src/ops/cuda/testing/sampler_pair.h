// Both samplers, the CUDA backend's and the host's, and random input for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/sampling/host_sampler.h"
#include "ops/testing/op_harness.h"

namespace tokamak {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

class CudaSampling : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Ops>> ops = MakeCudaOps({.threads = 1});
    if (!ops.ok()) GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
    ops_ = *std::move(ops);
    stream_ = ops_->MakeStream();
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Stream> stream_;
};

// Both samplers, with the same input.
class Pair {
 public:
  Pair(Ops& ops, Stream& stream, int32_t slots, int32_t vocab,
       std::optional<float> synthetic_acceptance = {})
      : ops_(ops), stream_(stream), pool_(2), vocab_(vocab) {
    const int32_t max_rows = 4 * slots;
    const SamplerShape shape = {.max_seqs = slots,
                                .max_rows = max_rows,
                                .vocab_size = vocab,
                                .synthetic_acceptance = synthetic_acceptance,
                                .max_proposals = 4};
    host_ = MakeHostSampler(shape, &pool_);
    Result<std::unique_ptr<Sampler>> device = ops.MakeSampler(shape);
    CHECK_MSG(device.ok(), device.status().ToString());
    device_ = *std::move(device);
    Result<Buffer> logits =
        ops.Allocate(sizeof(float) * static_cast<size_t>(max_rows) * static_cast<size_t>(vocab),
                     MemoryKind::kDevice);
    CHECK_MSG(logits.ok(), logits.status().ToString());
    logits_ = *std::move(logits);
  }

  void Admit(SequenceSlotId slot, const SamplingParams& spec, const std::vector<TokenId>& tokens,
             int32_t num_prompt, int32_t choice = 0) {
    host_->Admit(slot, spec, choice, tokens, num_prompt, stream_);
    device_->Admit(slot, spec, choice, tokens, num_prompt, stream_);
  }

  // Expects the same results of both, and returns them.
  std::vector<SampleResult> Sample(std::vector<float> logits, const std::vector<SampleRow>& rows,
                                   const std::vector<TokenMask>& masks = {}) {
    size_t num_draws = 0;
    for (const SampleRow& row : rows) num_draws += static_cast<size_t>(row.num_draws());
    std::vector<SampleResult> actual(num_draws), expected(num_draws);
    const Tensor on_device = Upload(logits);
    device_->Sample(on_device, rows, masks, actual, stream_);
    const Status status = ops_.Synchronize(stream_);
    CHECK_MSG(status.ok(), status.ToString());
    host_->Sample(OnHost(logits), rows, masks, expected, stream_);
    Expect(actual, expected);
    return actual;
  }
  void Score(std::vector<float> logits, const std::vector<TokenId>& tokens, int32_t top) {
    std::vector<SampleResult> actual(tokens.size()), expected(tokens.size());
    device_->Score(Upload(logits), tokens, top, actual, stream_);
    const Status status = ops_.Synchronize(stream_);
    CHECK_MSG(status.ok(), status.ToString());
    host_->Score(OnHost(logits), tokens, top, expected, stream_);
    Expect(actual, expected);
  }
  // The rows' logits are a draft model's, whose vocabulary may differ. Returns the proposals.
  std::vector<SampleResult> Propose(std::vector<float> logits, const std::vector<ProposalRow>& rows,
                                    int32_t number, double least_logprob) {
    std::vector<SampleResult> actual(rows.size()), expected(rows.size());
    Tensor on_host(logits.data(), DType::kF32,
                   Shape{static_cast<int64_t>(rows.size()),
                         static_cast<int64_t>(logits.size() / rows.size())});
    Tensor on_device = on_host;
    on_device.data = Upload(logits).data;
    device_->Propose(on_device, rows, number, least_logprob, actual, stream_);
    host_->Propose(on_host, rows, number, least_logprob, expected, stream_);
    std::vector<TokenFill> fills;
    for (size_t i = 0; i < rows.size(); ++i) {
      fills.push_back({.slot = rows[i].slot, .index = static_cast<int32_t>(i)});
    }
    std::vector<TokenId> filled(rows.size()), read(rows.size());
    const Shape shape{static_cast<int64_t>(rows.size())};
    device_->FillProposals(Tensor(logits_.data(), DType::kI32, shape), fills, number, stream_);
    host_->FillProposals(Tensor(filled.data(), DType::kI32, shape), fills, number, stream_);
    ops_.CopyToHost(read.data(), logits_.data(), read.size() * sizeof(TokenId), stream_);
    const Status status = ops_.Synchronize(stream_);
    CHECK_MSG(status.ok(), status.ToString());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(actual[i].token, expected[i].token) << "row " << i << ", proposal " << number;
      EXPECT_EQ(read[i], filled[i]) << "row " << i << ", proposal " << number;
    }
    return actual;
  }
  Sampler& device() { return *device_; }

 private:
  Tensor OnHost(std::vector<float>& logits) const {
    return Tensor(logits.data(), DType::kF32,
                  Shape{static_cast<int64_t>(logits.size()) / vocab_, vocab_});
  }
  Tensor Upload(std::vector<float>& logits) {
    Tensor tensor = OnHost(logits);
    tensor.data = logits_.data();
    ops_.CopyToDevice(logits_.data(), logits.data(), logits.size() * sizeof(float), stream_);
    const Status status = ops_.Synchronize(stream_);
    CHECK_MSG(status.ok(), status.ToString());
    return tensor;
  }
  static void Expect(const std::vector<SampleResult>& actual,
                     const std::vector<SampleResult>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i].health, expected[i].health) << "row " << i;
      ASSERT_EQ(actual[i].token, expected[i].token) << "row " << i;
      ASSERT_EQ(actual[i].logprobs, expected[i].logprobs) << "row " << i;
      ASSERT_EQ(actual[i].candidates, expected[i].candidates) << "row " << i;
    }
  }

  Ops& ops_;
  Stream& stream_;
  ThreadPool pool_;
  int32_t vocab_;
  std::unique_ptr<Sampler> host_, device_;
  Buffer logits_;
};

// Parameters of every kind, alone and together.
inline SamplingParams RandomSpec(std::mt19937& random, int32_t vocab) {
  const auto chance = [&random](int one_in) {
    return random() % static_cast<unsigned>(one_in) == 0;
  };
  const auto uniform = [&random](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  SamplingParams spec;
  spec.seed = (uint64_t{random()} << 32) | random();
  spec.temperature = chance(5) ? 0.0f : chance(6) ? uniform(0.01f, 0.2f) : uniform(0.3f, 3.0f);
  if (chance(5)) spec.dynatemp_range = uniform(0.1f, 2.0f);
  if (chance(5)) spec.dynatemp_exponent = uniform(0.2f, 3.0f);
  if (chance(5)) spec.top_n_sigma = uniform(0.3f, 3.0f);
  if (chance(3)) spec.top_k = 1 + static_cast<int32_t>(random() % (chance(2) ? 60u : 3000u));
  if (chance(3)) spec.top_p = chance(4) ? uniform(0.001f, 0.05f) : uniform(0.3f, 0.999f);
  if (chance(4)) spec.min_p = uniform(0.0001f, 0.3f);
  if (chance(4)) spec.typical_p = uniform(0.1f, 0.99f);
  if (chance(5)) spec.xtc_probability = uniform(0.2f, 1.0f);
  spec.xtc_threshold = uniform(0.0f, 0.3f);
  if (chance(4)) spec.repetition_penalty = uniform(0.7f, 1.8f);
  if (chance(4)) spec.presence_penalty = uniform(-1.0f, 1.0f);
  if (chance(4)) spec.frequency_penalty = uniform(-1.0f, 1.0f);
  if (chance(4)) {
    spec.dry_multiplier = uniform(0.1f, 4.0f);
    spec.dry_base = chance(3) ? 1.0f : uniform(1.0f, 3.0f);
    spec.dry_allowed_length = static_cast<int32_t>(random() % 4);
    spec.dry_penalty_last_n = static_cast<int32_t>(random() % 90) - 1;
    for (uint32_t i = random() % 4; i > 0; --i) {
      std::vector<TokenId>& breaker = spec.dry_breaker_sequences.emplace_back();
      for (uint32_t j = random() % 3 + 2; j > 0; --j) {
        breaker.push_back(
            static_cast<TokenId>(random() % std::min(9u, static_cast<uint32_t>(vocab))));
      }
      spec.dry_breaker_tokens.push_back(breaker.back());
    }
  }
  if (chance(3)) spec.repeat_last_n = static_cast<int32_t>(random() % (chance(2) ? 5u : 80u));
  if (chance(6)) {
    for (uint32_t i = random() % 60 + 1; i > 0; --i) {
      spec.allowed_token_ids.push_back(
          static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)));
    }
  }
  if (chance(5)) {
    for (uint32_t i = random() % 30 + 1; i > 0; --i) {  // few tokens, so that some words begin
      std::vector<TokenId>& word = spec.bad_words_ids.emplace_back();
      for (uint32_t j = random() % 3 + 1; j > 0; --j) {
        word.push_back(static_cast<TokenId>(random() % std::min(9u, static_cast<uint32_t>(vocab))));
      }
    }
  }
  if (chance(4)) {
    const int count = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < count; ++i) {  // few tokens, so that some have several entries
      const auto token =
          static_cast<TokenId>(random() % std::min<uint32_t>(20, static_cast<uint32_t>(vocab)));
      spec.logit_bias.emplace_back(token, uniform(-8.0f, 8.0f));
    }
  }
  if (chance(4)) {
    spec.min_tokens = static_cast<int32_t>(random() % 8);
    for (int i = 0; i < 3; ++i) {
      spec.stop_token_ids.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)));
    }
  }
  if (chance(3)) spec.logprobs = static_cast<int32_t>(random() % (chance(5) ? 3000u : 21u));
  return spec;
}

enum class Kind { kNormal, kTies, kSparse, kPeaked, kFlat };

inline std::vector<float> RandomLogits(std::mt19937& random, int32_t vocab, Kind kind) {
  std::normal_distribution<float> normal(0, kind == Kind::kPeaked ? 12.0f : 3.0f);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& x : logits) {
    x = kind == Kind::kFlat ? -0.5f : normal(random);
    if (kind == Kind::kTies) x = std::round(x);
    if (kind == Kind::kSparse && random() % 8 != 0) x = -kInf;
  }
  if (kind == Kind::kSparse) logits[static_cast<size_t>(vocab) / 2] = 1;
  return logits;
}

}  // namespace tokamak
