#include "runner/memory_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "models/testing/golden.h"
#include "ops/count/count_ops.h"
#include "ops/cpu/cpu_ops.h"
#include "runner/attention_shapes.h"
#include "runner/testing/driver.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;

class MemoryProfileTest : public ::testing::Test {
 protected:
  Result<MemoryProfile> Profile(const CacheBudget& budget) {
    const auto count = MakeCountOps();
    return ProfileMemory(*model_, *count, shape_, budget);
  }
  void ExpectRefused(const CacheBudget& budget, const std::vector<std::string>& parts) {
    const Status status = Profile(budget).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    for (const std::string& part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.ToString();
    }
  }

  std::unique_ptr<Ops> ops_ = *MakeCpuOps({.threads = 1});
  std::unique_ptr<Model> model_ = MakeToyModel(*ops_);
  RunnerShape shape_ = {.max_seqs = 8, .max_step_tokens = 96, .max_context = 200, .block_size = 16};
};

// Staging memory is pinned, once per step in flight, so it must not grow with slots times context.
TEST_F(MemoryProfileTest, StagingHoldsTheBlockTablesOfAFewSequences) {
  const nn::CacheLayout& cache = model_->spec().cache;
  const RunnerShape shape = {
      .max_seqs = 1024, .max_step_tokens = 2048, .max_context = 1 << 20, .block_size = 16};
  const StepShape step = MakeStepShape(shape, cache);
  EXPECT_EQ(step.max_updates, 2048 / 16 + 1024 + 8 * (1 << 16));
  EXPECT_LT(step.StagingBytes(), 10 << 20);
  EXPECT_GT(step.TableBytes(), 500 << 20);  // all tables, on the device
  // With few slots there is room for all tables.
  shape_.max_seqs = 3;
  EXPECT_EQ(MakeStepShape(shape_, cache).max_updates, 3 * 13);
}

TEST_F(MemoryProfileTest, TheLargestStepsFitIntoTheProfiledArena) {
  // Every token needs logits, for scoring or for drawing.
  shape_.max_seqs = 80;
  std::vector<DriverRequest> requests;
  for (int i = 0; i < 100; ++i) {
    const size_t length = i < 6 ? 90 + static_cast<size_t>(i) : 1;  // the short ones end together
    requests.push_back({.prompt = std::vector<TokenId>(length, i % 96),
                        .sampling = {.logprobs = 2, .prompt_logprobs = 1},
                        .num_generated = 4});
  }
  std::vector<std::unique_ptr<Model>> models;
  models.push_back(MakeToyModel(*ops_));
  models.push_back(MakeToyModel(*ops_, {.vocab_size = 20'000}));  // logits dominate
  for (const char* file : {"llama_odd.gguf", "llama_tied.gguf", "llama_yarn.gguf"}) {
    models.push_back(LoadOrDie(GoldenPath(file), *ops_));
  }
  for (const auto& model : models) {
    for (const int32_t step_tokens : {1, 7, 96}) {
      shape_.max_step_tokens = step_tokens;
      const auto count = MakeCountOps();
      auto profile = ProfileMemory(*model, *count, shape_, {.available_bytes = kGigabyte});
      ASSERT_TRUE(profile.ok()) << profile.status().ToString();
      auto runner = Runner::Create(*model, *ops_, shape_, profile->memory());
      ASSERT_TRUE(runner.ok());
      Drive(**runner, requests, {.max_concurrent = 80});  // a CHECK fails if the arena is too small
      // At most slightly more than a step holds at once: logits, hidden states, a few activations.
      const int64_t logits = std::min(step_tokens, shape_.max_seqs) * 4 * model->spec().vocab_size;
      EXPECT_LT(profile->arena_bytes, logits + step_tokens * 8000 + 10'000);
    }
  }
}

TEST_F(MemoryProfileTest, CountsTheMultiplicationsOfTheMatrices) {
  model_ = LoadOrDie(GoldenPath("llama_tied.gguf"), *ops_);
  const auto profile = Profile({.available_bytes = kGigabyte});
  ASSERT_TRUE(profile.ok());
  // Two layers of q, k and v, output, gate and up, down; the embedding of 320 tokens gives logits.
  EXPECT_EQ(profile->token_macs, 2 * (64 * (256 + 64 + 64) + 256 * 64 + 3 * 64 * 160));
  EXPECT_EQ(profile->logits_macs, 320 * 64);
}

TEST_F(MemoryProfileTest, HasAsManyBlocksAsRequested) {
  const auto profile = Profile({.available_bytes = kGigabyte,
                                .num_blocks = 77,
                                .kv_cache_bytes = 1,
                                .host_cache_bytes = 100'000});
  ASSERT_TRUE(profile.ok());
  // Two full layers: 2 · (k + v) · 2 heads · 16 positions · 8 floats.
  EXPECT_EQ(profile->block_bytes, 4096);
  EXPECT_EQ(profile->num_device_blocks, 77);
  EXPECT_EQ(profile->num_host_blocks, 24);
  EXPECT_EQ(Profile({.available_bytes = kGigabyte, .kv_cache_bytes = 50'000})->num_device_blocks,
            12);
}

TEST_F(MemoryProfileTest, TheDefaultHoldsAllSequencesIfMemoryAllows) {
  // 8 slots of 200 positions: 13 blocks each, in two groups.
  EXPECT_EQ(Profile({.available_bytes = kGigabyte})->num_device_blocks, 8 * 13 * 2);
  EXPECT_EQ(Profile({.available_bytes = kGigabyte, .default_positions = 32})->num_device_blocks,
            8 * 2 * 2);
  // At least one sequence of max_context.
  EXPECT_EQ(Profile({.available_bytes = kGigabyte, .default_positions = 1})->num_device_blocks,
            13 * 2);
  const auto fixed = Profile({.available_bytes = kGigabyte});
  const int64_t fixed_bytes = fixed->arena_bytes + fixed->staging_bytes;
  EXPECT_EQ(Profile({.available_bytes = fixed_bytes + 20 * 4096})->num_device_blocks, 10);
}

TEST_F(MemoryProfileTest, RefusesCachesThatDoNotFitWithTheNumbers) {
  ExpectRefused({.available_bytes = kGigabyte, .num_blocks = 1},
                {"would have 1 blocks of 4.1 KB", "2 are needed"});
  ExpectRefused({.available_bytes = kGigabyte, .kv_cache_bytes = 4000}, {"would have 0 blocks"});
  ExpectRefused({.available_bytes = 1000}, {"would have 0 blocks"});
  ExpectRefused({.available_bytes = -5}, {"would have 0 blocks"});
  ExpectRefused({.available_bytes = kGigabyte, .num_blocks = 1'000'000},
                {"1000000 blocks takes 4.10 GB", "1.00 GB of memory are available"});
  ExpectRefused({.available_bytes = kGigabyte, .host_cache_bytes = 2 * kGigabyte},
                {"the host tier 2.00 GB"});
  EXPECT_TRUE(Profile({.available_bytes = kGigabyte,
                       .host_cache_bytes = 2 * kGigabyte,
                       .host_tier_apart = true})
                  .ok());
  ExpectRefused(
      {.available_bytes = kGigabyte, .kv_cache_bytes = std::numeric_limits<int64_t>::max()},
      {"of memory are available"});
}

TEST(AttentionShapes, RefusesAGroupOfUnequalLayers) {
  const nn::CacheLayout cache = {
      .groups = {{}},
      .layers = {{.group = 0, .num_heads = 4, .num_kv_heads = 2, .head_dim = 8},
                 {.group = 0, .num_heads = 4, .num_kv_heads = 4, .head_dim = 8}}};
  EXPECT_EQ(AttentionShapes(cache, {.max_context = 10}).status().code(),
            StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tokamak::testing
