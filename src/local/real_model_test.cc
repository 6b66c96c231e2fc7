// Runs SmolLM2-135M-Instruct on a GPU through the public Engine with its defaults (graphs,
// overlapping steps, a bf16 cache). Expects the CPU's greedy tokens, except for proven near-ties,
// and the reference's logprobs within the error of bf16. models/real_model_test.cc compares the
// CPU's tokens with the goldens. Needs the model: the path in TOKAMAK_TEST_MODEL, or where
// scripts/fetch-model puts it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/testing/refs.h"
#include "models/testing/golden.h"
#include "ops/cuda/cuda_ops.h"
#include "tokamak/engine.h"

namespace tokamak::testing {
namespace {

// The error of bf16. It has 8 bits: rounding changes a number by up to 1 part in 2^8, 0.17% in the
// root mean square. Both operands of a projection are rounded, so a sum of products is off by
// 0.23%. The 60 projections that add to the residual stream make that a random walk of up to √60 ·
// 0.23% = 1.8% of the hidden state. If the logits of likely tokens differ by a few units, that
// difference is off by some hundredths.
//
// Measured with transformers in float32, with the weights, the inputs of all projections, keys and
// values rounded to bf16, over the 20 × 128 positions below: the gap between the best two tokens
// changes by 0.043 (standard deviation; 99% by less than 0.14, 99.9% by less than 0.23). 10
// positions get another best token, over gaps of up to 0.049. Logprobs of the texts change by 0.013
// to 0.034 (root mean square), the largest by 0.13.
//
// Gaps up to 1 have a density of about 870 positions per unit. With such errors about 15 positions
// get another best token, and 0.04 positions do so over a gap of more than 0.2.
constexpr double kNearTie = 0.2;
constexpr size_t kMostNearTies = 40;
constexpr double kLogprobRms = 0.06;
constexpr double kLogprobWorst = 0.3;

using Ids = std::vector<int32_t>;

std::unique_ptr<Engine> LoadEngine(const std::string& model, const std::string& device) {
  Result<std::unique_ptr<Engine>> engine =
      // The CPU computes with f32 activations, the GPU as by default.
      Engine::Load(
          {.model = model, .device = device, .precise = device == "cpu", .max_context = 2048});
  CHECK_MSG(engine.ok(), engine.status().ToString());
  return *std::move(engine);
}

OutputChunk Generate(Engine& engine, Request request) {
  Result<std::vector<OutputChunk>> choices = engine.Generate(std::move(request));
  CHECK_MSG(choices.ok(), choices.status().ToString());
  OutputChunk& answer = choices->front();
  CHECK_MSG(answer.error.ok(), answer.error.ToString());
  return std::move(answer);
}

Request Greedy(Ids prompt, size_t num_tokens) {
  Request request;
  request.token_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = static_cast<int32_t>(num_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

// log p(ids[i + 1] | ids[0 … i]), with the most likely alternative.
std::vector<TokenLogprobs> Score(Engine& engine, const Ids& ids) {
  Request request = Greedy(ids, 0);
  request.sampling.prompt_logprobs = 1;
  return Generate(engine, std::move(request)).prompt_logprobs;
}

// The tokens of `golden` from `begin` on, to be generated after those before.
struct Run {
  const GoldenGreedy* golden;
  size_t begin;

  // The prompt and the tokens before `end`.
  Ids Context(size_t end) const {
    Ids ids = golden->prompt;
    ids.insert(ids.end(), golden->tokens.begin(), golden->tokens.begin() + static_cast<long>(end));
    return ids;
  }
};

struct Difference {
  Run run;
  size_t position;
  int32_t token;  // generated instead of the golden's
};

std::vector<Ids> GenerateAll(Engine& engine, const std::vector<Run>& runs) {
  std::vector<std::future<OutputChunk>> answers;
  for (const Run& run : runs) {
    answers.push_back(std::async(std::launch::async, [&engine, run] {
      const size_t left = run.golden->tokens.size() - run.begin;
      return Generate(engine, Greedy(run.Context(run.begin), left));
    }));
  }
  std::vector<Ids> tokens;
  for (auto& answer : answers) tokens.push_back(answer.get().token_ids);
  return tokens;
}

// Generates all of the goldens' tokens. After a difference it continues from the golden's token, so
// that every position is compared (`*num_compared`). Gives up after kMostNearTies differences.
std::vector<Difference> CompareAll(Engine& engine, const std::vector<GoldenGreedy>& goldens,
                                   size_t* num_compared) {
  std::vector<Difference> differences;
  std::vector<Run> runs;
  for (const GoldenGreedy& golden : goldens) runs.push_back({&golden, 0});
  while (!runs.empty() && differences.size() <= kMostNearTies) {
    const std::vector<Ids> generated = GenerateAll(engine, runs);
    std::vector<Run> rest;
    for (size_t i = 0; i < runs.size(); ++i) {
      const Ids& expected = runs[i].golden->tokens;
      size_t position = runs[i].begin;
      EXPECT_EQ(generated[i].size(), expected.size() - position) << runs[i].golden->name;
      for (const int32_t token : generated[i]) {
        ++*num_compared;
        if (token != expected[position++]) {
          differences.push_back({runs[i], position - 1, token});
          if (position < expected.size()) rest.push_back({runs[i].golden, position});
          break;
        }
      }
    }
    runs = std::move(rest);
  }
  return differences;
}

// How much the CPU prefers its own token, in nats.
double CpuGap(Engine& cpu, const Difference& difference) {
  const int32_t own = difference.run.golden->tokens[difference.position];
  const auto score = [&](int32_t token) {
    Ids ids = difference.run.Context(difference.position);
    ids.push_back(token);
    return Score(cpu, ids).back();
  };
  const TokenLogprobs best = score(own);
  EXPECT_EQ(best.top.front().token_id, own) << "the golden has not the CPU's token";
  return double{best.token.logprob} - double{score(difference.token).token.logprob};
}

class RealModelCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = MakeCudaOps({}).status();
    if (!status.ok()) GTEST_SKIP() << "no CUDA backend here: " << status.ToString();
    const char* const given = std::getenv("TOKAMAK_TEST_MODEL");
    const auto found = given != nullptr ? std::optional<std::string>(given) : FindModel();
    SKIP_WITHOUT(found);
    model_ = *found;
    gpu_ = LoadEngine(model_, "cuda");
  }

  std::string model_;
  std::unique_ptr<Engine> gpu_;
};

TEST_F(RealModelCudaTest, GreedyTokensAreTheCpusButForNearTies) {
  const std::vector<GoldenGreedy> goldens = ReadRealGolden().greedy;
  ASSERT_EQ(goldens.size(), 20u);
  size_t num_compared = 0;
  const std::vector<Difference> differences = CompareAll(*gpu_, goldens, &num_compared);
  const std::unique_ptr<Engine> cpu = LoadEngine(model_, "cpu");
  for (const Difference& difference : differences) {
    const GoldenGreedy& golden = *difference.run.golden;
    const int32_t own = golden.tokens[difference.position];
    const double gap = CpuGap(*cpu, difference);
    const std::string what =
        fmt::format("prompt {} ({}), token {}: {} \"{}\", on the CPU {} \"{}\", by a gap of {:.4f}",
                    &golden - goldens.data(), golden.name, difference.position, difference.token,
                    gpu_->TokenBytes(difference.token), own, gpu_->TokenBytes(own), gap);
    std::printf("%s\n", what.c_str());
    EXPECT_LT(gap, kNearTie) << what;
  }
  ASSERT_LE(differences.size(), kMostNearTies);
  EXPECT_EQ(num_compared, 20u * 128);
  std::printf("%zu of %zu tokens differ\n", differences.size(), num_compared);
}

TEST_F(RealModelCudaTest, LogprobsOfTexts) {
  for (const GoldenScore& golden : ReadRealGolden().scores) {
    const std::vector<TokenLogprobs> scored = Score(*gpu_, golden.tokens);
    ASSERT_EQ(scored.size() + 1, golden.tokens.size());
    double worst = 0, squares = 0;
    for (size_t i = 0; i < scored.size(); ++i) {
      ASSERT_EQ(scored[i].token.token_id, golden.tokens[i + 1]);
      const double error = std::abs(scored[i].token.logprob - golden.logprobs[i]);
      ASSERT_FALSE(std::isnan(error)) << golden.name << " token " << i;
      worst = std::max(worst, error);
      squares += error * error;
    }
    const double rms = std::sqrt(squares / static_cast<double>(scored.size()));
    std::printf("%-10s %4zu tokens, differences: worst %.4f, root mean square %.4f\n",
                golden.name.c_str(), golden.tokens.size(), worst, rms);
    EXPECT_LT(worst, kLogprobWorst) << golden.name;
    EXPECT_LT(rms, kLogprobRms) << golden.name;
  }
}

}  // namespace
}  // namespace tokamak::testing
