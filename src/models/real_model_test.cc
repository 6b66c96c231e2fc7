// Compares SmolLM2-135M-Instruct (Q4_1) with transformers in float32 on the same dequantized
// weights. Needs the environment variable TOKAMAK_TEST_MODEL, the path of the GGUF file.
// TOKAMAK_TEST_BACKEND selects a backend other than the fastest.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "models/testing/backends.h"
#include "models/testing/golden.h"

namespace tokamak::testing {
namespace {

class RealModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const path = std::getenv("TOKAMAK_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "TOKAMAK_TEST_MODEL is not set: no real model to test";
    const char* const backend = std::getenv("TOKAMAK_TEST_BACKEND");
    ops_ = MakeBackend(backend != nullptr ? backend : PreciseBackendNames().back());
    model_ = LoadOrDie(path, *ops_, {.max_context = 2048, .progress = nullptr});
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
};

TEST_F(RealModelTest, LogprobsOfTexts) {
  double worst = 0;
  for (const GoldenScore& golden : ReadRealGolden().scores) {
    Harness harness(*model_, *ops_);
    const auto count = static_cast<int32_t>(golden.tokens.size());
    const auto logits = harness.Run(golden.tokens, count);
    double worst_here = 0;
    for (size_t i = 0; i + 1 < golden.tokens.size(); ++i) {
      const double logprob = Logprob(logits[i], golden.tokens[i + 1]);
      worst_here = std::max(worst_here, std::abs(logprob - golden.logprobs[i]));
      ASSERT_FALSE(std::isnan(logprob));
    }
    std::printf("%-10s %4d tokens, worst difference %g\n", golden.name.c_str(), count, worst_here);
    worst = std::max(worst, worst_here);
  }
  EXPECT_LT(worst, 1e-3);
}

TEST_F(RealModelTest, GreedyTokens) {
  const std::vector<GoldenGreedy> goldens = ReadRealGolden().greedy;
  ASSERT_EQ(goldens.size(), 20u);
  Harness harness(*model_, *ops_, {.num_blocks = 512});
  EXPECT_EQ(CheckGreedy(harness, goldens), 20 * 128);
}

}  // namespace
}  // namespace tokamak::testing
