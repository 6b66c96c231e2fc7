#include "local/draft_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/cpu/cpu_ops.h"
#include "runner/testing/queued_ops.h"
#include "weights/checkpoint.h"
#include "weights/config.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPlenty = 1'000'000'000;  // bytes

// A Llama with such heads.
Checkpoint LlamaWith(int head_dim) {
  const std::string config = fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "vocab_size": 100,
          "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": {},
          "num_attention_heads": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}})",
      head_dim);
  const std::string name = fmt::format("llama_{}", head_dim);
  return MakeDummyCheckpoint(ParseConfigJson(config, name).value(), name).value();
}

// On a GPU with so much memory.
Status Check(const Checkpoint& model, const Checkpoint& draft, int64_t free_bytes) {
  const auto gpu = testing::MakeQueuedOps(*MakeCpuOps({.threads = 1}), 1,
                                          testing::QueuedDevice{.free_bytes = free_bytes});
  return CheckBothFit(model, draft, EngineOptions(), *gpu);
}

// The smallest memory into which both fit.
int64_t Least(const Checkpoint& model, const Checkpoint& draft) {
  int64_t low = 0, high = kPlenty;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (Check(model, draft, middle).ok() ? high : low) = middle;
  }
  return high;
}

TEST(CheckBothFit, CountsTheWeightsOfBoth) {
  const Checkpoint small = LlamaWith(8), large = LlamaWith(64);
  const int64_t both = Least(large, small);
  EXPECT_EQ(2 * both, Least(large, large) + Least(small, small));
  EXPECT_GT(both, Least(small, small));
  const Status status = Check(large, small, both - 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(), HasSubstr("llama_64 and the draft model llama_8: weights and"));
}

TEST(CheckBothFit, ADraftModelTooLargeForTheKernelsIsRefused) {
  EXPECT_TRUE(Check(LlamaWith(8), LlamaWith(512), kPlenty).ok());
  const Status status = Check(LlamaWith(8), LlamaWith(578), kPlenty);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(status.message().starts_with("draft_model: CUDA: attention with heads of 578; "));
  EXPECT_TRUE(status.message().ends_with("; use device=cpu")) << status.message();
}

}  // namespace
}  // namespace tokamak
