// Models against goldens made with Hugging Face transformers in float32 (tests/golden).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "models/testing/backends.h"
#include "models/testing/golden.h"

namespace tokamak::testing {
namespace {

class TinyGoldenTest : public ::testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  std::unique_ptr<Ops> ops_ = MakeBackend(std::get<1>(GetParam()));
  std::unique_ptr<Model> model_ = LoadOrDie(GoldenPath(model() + ".gguf"), *ops_);
  TinyGolden golden_ = ReadTinyGolden(model());
};

TEST_P(TinyGoldenTest, LogitsAtEveryPosition) {
  Harness harness(*model_, *ops_);
  const auto logits = harness.Run(golden_.tokens, static_cast<int32_t>(golden_.tokens.size()));
  double worst = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    for (size_t i = 0; i < golden_.kept_ids[t].size(); ++i) {
      const auto id = static_cast<size_t>(golden_.kept_ids[t][i]);
      worst = std::max(worst, std::abs(logits[t][id] - golden_.kept_logits[t][i]));
    }
    worst = std::max(worst, std::abs(LogSumExp(logits[t]) - golden_.logsumexp[t]));
    ASSERT_FALSE(std::isnan(worst));
  }
  RecordProperty("worst", std::to_string(worst));
  printf("worst difference: %g\n", worst);
  EXPECT_LT(worst, 1e-4);
}

TEST_P(TinyGoldenTest, GreedyTokens) {
  Harness harness(*model_, *ops_);
  EXPECT_EQ(CheckGreedy(harness, {golden_.greedy}), 64);
}

INSTANTIATE_TEST_SUITE_P(
    Families, TinyGoldenTest,
    ::testing::Combine(::testing::Values("llama_odd", "llama_tied", "llama_yarn", "qwen3_odd",
                                         "qwen3_tied", "qwen3_moe_odd", "qwen3_moe_128"),
                       ::testing::ValuesIn(PreciseBackendNames())),
    [](const auto& info) {
      std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
      return name;
    });

}  // namespace
}  // namespace tokamak::testing
