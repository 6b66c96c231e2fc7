// The plan of a model against what the engine then takes.
#include "api/model_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "api/load.h"
#include "api/load_embedding.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;

bool Embeds(const std::string& model) {
  return model.find("bert") != std::string::npos || model.find("embedding") != std::string::npos;
}

// Every tiny model of the goldens that embeds, or generates.
std::vector<std::string> Models(bool embed) {
  std::vector<std::string> models;
  const std::string folder = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf" && Embeds(entry.path().filename()) == embed) {
      models.push_back(entry.path());
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/hf")) {
    if (entry.is_directory() && Embeds(entry.path().filename()) == embed)
      models.push_back(entry.path());
  }
  return models;
}

EngineOptions Options(const std::string& model) {
  return {.model = model, .device = "cpu", .precise = true, .threads = 1, .max_seqs = 8};
}

TEST(ModelPlan, IsWhatTheEngineTakes) {
  for (const std::string& model : Models(/*embed=*/false)) {
    SCOPED_TRACE(model);
    const Result<ModelPlan> plan = PlanModel(Options(model), 128, 4);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const Result<EngineParts> parts = LoadParts(Options(model));
    ASSERT_TRUE(parts.ok()) << parts.status().ToString();
    EXPECT_EQ(plan->num_parameters, parts->model.num_parameters);
    EXPECT_EQ(plan->architecture, parts->model.architecture);
    EXPECT_EQ(plan->max_context, parts->model.max_context);
    EXPECT_NEAR(static_cast<double>(plan->weight_bytes),
                static_cast<double>(parts->model.weight_bytes),
                0.05 * static_cast<double>(plan->weight_bytes));
    const CacheSpec& cache = parts->executor->limits().cache;
    EXPECT_EQ(plan->block_bytes, cache.block_bytes);
    ASSERT_EQ(plan->cache_groups.size(), cache.groups.size());
    for (size_t i = 0; i < cache.groups.size(); ++i) {
      EXPECT_EQ(plan->cache_groups[i].window, cache.groups[i].window);
      EXPECT_LE(plan->cache_groups[i].token_bytes * plan->block_size, cache.block_bytes);
    }
  }
}

TEST(ModelPlan, IsWhatTheEngineTakesToEmbed) {
  const std::vector<std::string> models = Models(/*embed=*/true);
  EXPECT_GE(models.size(), 4U);
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    EngineOptions options = Options(model);
    options.pooling = "mean";
    const Result<ModelPlan> plan = PlanModel(options, 0, 4);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto checkpoint = OpenCheckpoint(model, {});
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    const Result<EmbeddingParts> parts = LoadEmbeddingParts(options, *checkpoint);
    ASSERT_TRUE(parts.ok()) << parts.status().ToString();
    EXPECT_EQ(plan->task, Task::kEmbed);
    EXPECT_EQ(plan->num_parameters, parts->model.num_parameters);
    EXPECT_EQ(plan->max_context, parts->model.max_context);
    EXPECT_EQ(plan->context, parts->model.max_context);
    EXPECT_NEAR(static_cast<double>(plan->weight_bytes),
                static_cast<double>(parts->model.weight_bytes),
                0.05 * static_cast<double>(plan->weight_bytes));
    const int64_t taken = parts->runner->bytes();
    EXPECT_NEAR(static_cast<double>(plan->needed_bytes() - plan->weight_bytes),
                static_cast<double>(taken), 0.05 * static_cast<double>(taken));
    EXPECT_GT(plan->prefill.seconds(), 0);
    EXPECT_TRUE(plan->decode.empty());
  }
}

// What latent attention keeps of a position, and what its materialized heads would take.
TEST(ModelPlan, LatentsTakeTheirRankAndTheirRotatedKey) {
  EngineOptions options =
      Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/hf/deepseek_v2_256");
  for (const char* form : {"absorbed", "latent", "auto", "standard"}) {
    SCOPED_TRACE(form);
    options.mla = form;
    const Result<ModelPlan> plan = PlanModel(options, 128, 4);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    ASSERT_EQ(plan->cache_groups.size(), 1U);
    // 2 layers, f32; kv_lora_rank 256, 2 heads, qk_rope_head_dim 32, qk_nope_head_dim and v 64.
    const bool standard = options.mla == "standard";
    const int64_t token_bytes = 2 * 4 * (standard ? 2 * (32 + 64 + 64) : 256 + 32);
    EXPECT_EQ(plan->cache_groups[0].token_bytes, token_bytes);
    EXPECT_EQ(plan->cache_groups[0].kind, standard ? "full" : "latent");
    const Result<EngineParts> parts = LoadParts(options);
    ASSERT_TRUE(parts.ok()) << parts.status().ToString();
    EXPECT_EQ(parts->executor->limits().cache.block_bytes, options.block_size * token_bytes);
    EXPECT_EQ(plan->block_bytes, options.block_size * token_bytes);
    EXPECT_EQ(plan->weight_bytes, parts->model.weight_bytes);
  }
}

TEST(ModelPlan, CountsTheExpertsThatATokenUses) {
  const Result<ModelPlan> plan = PlanModel(
      Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/qwen3_moe_odd.gguf"), 128, 4);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  // 3 layers of 7 experts, of which a token uses 3; hidden 66, 37 inside.
  const int64_t expert = 3 * 66 * 37;
  EXPECT_EQ(plan->num_parameters - plan->active_parameters, 3 * 4 * expert);
}

// Twice the sequences cannot take less than as long, nor more than twice as long.
TEST(ModelPlan, LargerBatchesAreFasterTogether) {
  const Result<ModelPlan> plan =
      PlanModel(Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf"), 256, 8);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->decode.size(), 4U);
  for (size_t i = 1; i < plan->decode.size(); ++i) {
    const double before = plan->decode[i - 1].step.seconds(), now = plan->decode[i].step.seconds();
    EXPECT_GE(now, before);
    EXPECT_LE(now, 2.0001 * before);
    EXPECT_TRUE(plan->decode[i].fits);
  }
  EXPECT_EQ(plan->sequence_blocks, 256 / 16);
}

TEST(ModelPlan, RefusesWhatTheModelHasNot) {
  const std::string model = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf";
  EXPECT_THAT(PlanModel(Options(model), 4096, 4).status().ToString(), HasSubstr("512 positions"));
  EngineOptions options = Options(model);
  options.device = "abacus";
  EXPECT_THAT(PlanModel(options, 0, 4).status().ToString(), HasSubstr("one of h200"));
  const std::string encoder = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/hf/bert_odd";
  EXPECT_THAT(PlanModel(Options(encoder), 4096, 4).status().ToString(), HasSubstr("positions"));
  options = Options(encoder);
  options.device = "h200";
  EXPECT_THAT(PlanModel(options, 0, 4).status().ToString(), HasSubstr("run on CPUs alone"));
}

}  // namespace
}  // namespace tokamak
