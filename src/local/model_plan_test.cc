// Compares a model's plan with what the engine then uses.
#include "local/model_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/option_names.h"
#include "base/thread_pool.h"
#include "local/load.h"
#include "local/load_embedding.h"
#include "local/load_steps.h"
#include "local/memory_estimate.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;

bool Embeds(const std::string& model) {
  return model.find("bert") != std::string::npos || model.find("embedding") != std::string::npos;
}

// Every tiny golden model that embeds, or every one that generates.
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

// Expects that the numbers differ by at most 5%.
void ExpectAbout(int64_t planned, int64_t taken) {
  EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(taken),
              0.05 * static_cast<double>(taken));
}

// The most expensive step: as many tokens and sequences as allowed, with prompt logprobs.
StepInput LargestStep(const RunnerShape& shape, const CacheSpec& cache) {
  const int32_t tokens = shape.max_step_tokens / shape.max_seqs;
  const int32_t blocks = (tokens + shape.block_size - 1) / shape.block_size;
  StepInput step;
  BlockId next = 0;
  for (SequenceSlotId slot = 0; slot < shape.max_seqs; ++slot) {
    step.admit.push_back({.slot = slot,
                          .tokens = std::vector<TokenId>(static_cast<size_t>(tokens), 3),
                          .num_prompt_tokens = tokens,
                          .sampling = {.prompt_logprobs = 0}});
    for (size_t group = 0; group < cache.groups.size(); ++group) {
      AppendBlocks append = {.slot = slot, .group = static_cast<int32_t>(group)};
      for (int32_t i = 0; i < blocks; ++i) append.blocks.push_back(next++);
      step.append.push_back(append);
    }
    step.rows.push_back({.slot = slot, .num_tokens = tokens, .sample = true});
  }
  return step;
}

// Memory that loading takes, and that the largest step then uses.
struct Taken {
  int64_t weight_bytes = 0;
  int64_t runner_bytes = 0;  // without the cache
};

void Take(EngineOptions options, const ModelPlan& plan, Taken* taken) {
  const auto checkpoint = OpenCheckpoint(options.model, {});
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ThreadPool pool(1);
  const auto ops = MakeOpsFor(*checkpoint, options, Task::kGenerate, pool, nullptr);
  ASSERT_TRUE(ops.ok()) << ops.status().ToString();
  const auto model = LoadWeights(*checkpoint, **ops, options, Task::kGenerate);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(plan.num_parameters, (*model)->spec().num_parameters);
  EXPECT_EQ(plan.architecture, (*model)->spec().architecture);
  EXPECT_EQ(plan.max_context, (*model)->spec().max_context);
  taken->weight_bytes = (*model)->spec().weight_bytes;

  options.num_blocks = options.max_batch_tokens * static_cast<int32_t>(plan.cache_groups.size());
  const auto shape = MakeRunnerShape(options, **model);
  const auto memory =
      EstimateRunnerMemory(**model, options, shape, INT64_MAX / 2, /*on_device=*/true);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  const auto runner = Runner::Create(**model, **ops, shape, memory->memory());
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  const CacheSpec& cache = (*runner)->cache();
  EXPECT_EQ(plan.block_bytes, cache.block_bytes);
  ASSERT_EQ(plan.cache_groups.size(), cache.groups.size());
  int64_t largest = 0;
  for (size_t i = 0; i < cache.groups.size(); ++i) {
    EXPECT_EQ(plan.cache_groups[i].window, cache.groups[i].window);
    largest = std::max(largest, plan.cache_groups[i].token_bytes * plan.block_size);
  }
  ExpectAbout(largest, cache.block_bytes);  // blocks of all groups are as large as the largest
  ASSERT_TRUE((*runner)->Submit(LargestStep(shape, cache)).ok());
  ASSERT_TRUE((*runner)->Sample(0).ok());
  ASSERT_TRUE((*runner)->Wait(0).ok());
  taken->runner_bytes = (*runner)->bytes() - cache.num_device_blocks * cache.block_bytes;
}

void ExpectThePlanToBeTrue(const EngineOptions& options) {
  SCOPED_TRACE(options.model);
  const Result<ModelPlan> plan = PlanModel(options, 64, 4);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  Taken taken;
  Take(options, *plan, &taken);
  ExpectAbout(plan->weight_bytes, taken.weight_bytes);
  ExpectAbout(
      plan->activation_bytes + plan->staging_bytes + plan->encoder_bytes + plan->state_bytes,
      taken.runner_bytes);
}

TEST(ModelPlan, EqualsTheMemoryOfTheEngine) {
  for (const std::string& model : Models(/*embed=*/false)) ExpectThePlanToBeTrue(Options(model));
}

// The same with activations rounded as this machine does.
TEST(ModelPlan, EqualsTheMemoryOfTheEngineFromAConfigurationAlone) {
  for (const std::string& model : Models(/*embed=*/false)) {
    if (model.ends_with(".gguf")) continue;
    EngineOptions options = Options("dummy:" + model + "/config.json");
    options.precise = false;
    ExpectThePlanToBeTrue(options);
  }
}

// gpt-oss's configuration says that experts are MXFP4, so its dummy is as large as the real model.
TEST(ModelPlan, ADummyOfGptOssHasItsTypes) {
  const std::string model = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/hf/gpt_oss_64";
  const Result<ModelPlan> real = PlanModel(Options(model), 64, 1);
  const Result<ModelPlan> dummy = PlanModel(Options("dummy:" + model + "/config.json"), 64, 1);
  ASSERT_TRUE(real.ok() && dummy.ok());
  ExpectAbout(dummy->weight_bytes, real->weight_bytes);
  const auto mxfp4 = [](const ModelPlan& plan) {
    for (const auto& [type, bytes] : plan.stored_bytes) {
      if (type == "MXFP4") return bytes;
    }
    return int64_t{0};
  };
  EXPECT_GT(mxfp4(*real), 0);
  EXPECT_EQ(mxfp4(*dummy), mxfp4(*real));
}

TEST(ModelPlan, CountsTheRopeTableOfAllPositions) {
  EngineOptions options = Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf");
  const Result<ModelPlan> whole = PlanModel(options, 64, 1);
  options.max_context = 128;
  const Result<ModelPlan> part = PlanModel(options, 64, 1);
  ASSERT_TRUE(whole.ok() && part.ok());
  // Heads have 14 rotated dimensions.
  EXPECT_EQ(part->table_bytes, 128 * 14 * int64_t{sizeof(float)});
  EXPECT_EQ(whole->table_bytes, 4 * part->table_bytes);  // 512 positions
  EXPECT_EQ(whole->weight_bytes, part->weight_bytes);
  EXPECT_EQ(whole->needed_bytes(), whole->weight_bytes + whole->table_bytes +
                                       whole->activation_bytes + whole->staging_bytes);
}

TEST(ModelPlan, HasAStateForEachSequence) {
  EngineOptions options = Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/hf/qwen35_128");
  options.max_seqs = 5;
  const auto plan = [&options](int32_t concurrency) {
    return PlanModel(options, 64, concurrency).value();
  };
  // Three layers with two heads of 128 x 128, and three past inputs of two heads' values and of a
  // head's queries and keys.
  const int64_t of_sequence = 3 * (2 * 128 * 128 + 3 * 4 * 128) * int64_t{sizeof(float)};
  EXPECT_EQ(plan(1).sequence_state_bytes, of_sequence);
  EXPECT_EQ(plan(1).state_bytes, 5 * of_sequence);
  EXPECT_EQ(plan(1).sequences, 5);  // there are blocks for many more
  EXPECT_EQ(plan(8).state_bytes, 8 * of_sequence);
  // The three layers may be on two stages, of which one has no attention.
  options.pipeline_parallel = 2;
  EXPECT_EQ(plan(1).sequences, 5);
}

TEST(ModelPlan, APreciseGpuTakesF32) {
  EngineOptions options = Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf");
  options.device = "h200";
  const Result<ModelPlan> precise = PlanModel(options, 64, 1);
  options.precise = false;
  const Result<ModelPlan> rounded = PlanModel(options, 64, 1);
  ASSERT_TRUE(precise.ok() && rounded.ok());
  ExpectAbout(precise->weight_bytes - rounded->weight_bytes, 2 * rounded->num_parameters);
  EXPECT_EQ(precise->kv_dtype, "f32");
  EXPECT_EQ(rounded->kv_dtype, "bf16");
  EXPECT_EQ(precise->block_bytes, 2 * rounded->block_bytes);
  EXPECT_GT(precise->activation_bytes, rounded->activation_bytes);
  EXPECT_EQ(precise->hardware.multiplies_in, "f32");
  EXPECT_LT(precise->hardware.gmac_s, rounded->hardware.gmac_s);
}

TEST(ModelPlan, ACacheInFp8TakesAByteForEachElement) {
  EngineOptions options = Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf");
  for (const char* device : {"cpu", "h200"}) {
    options.device = device;
    options.kv_cache_dtype = KvCacheDtype::kF32;
    const Result<ModelPlan> wide = PlanModel(options, 64, 1);
    options.kv_cache_dtype = KvCacheDtype::kFp8;
    const Result<ModelPlan> narrow = PlanModel(options, 64, 1);
    ASSERT_TRUE(wide.ok() && narrow.ok()) << device;
    EXPECT_EQ(narrow->refusal, "") << device;
    EXPECT_EQ(narrow->kv_dtype, "fp8") << device;
    EXPECT_EQ(4 * narrow->cache_groups[0].token_bytes, wide->cache_groups[0].token_bytes) << device;
    EXPECT_LT(narrow->block_bytes, wide->block_bytes) << device;
  }
}

TEST(ModelPlan, AGpuRefusesCacheTypesOfCpus) {
  EngineOptions options = Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/hf/mistral_128");
  options.kv_cache_dtype = KvCacheDtype::kQ8_0;
  options.device = "h200";
  EXPECT_THAT(PlanModel(options, 64, 1)->refusal, HasSubstr("kv_cache_dtype=q8_0"));
}

TEST(ModelPlan, AGpuRunsModelsWithExpertsAndLatentAttention) {
  const std::string golden = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/";
  for (const char* model :
       {"hf/deepseek_v2_odd", "qwen3_moe_odd.gguf", "hf/gemma3_odd", "llama_odd.gguf"}) {
    SCOPED_TRACE(model);
    EngineOptions options = Options(golden + model);
    EXPECT_EQ(PlanModel(options, 64, 1)->refusal, "");
    options.device = "h200";
    const Result<ModelPlan> plan = PlanModel(options, 64, 1);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_EQ(plan->refusal, "");
  }
}

TEST(ModelPlan, EqualsTheMemoryOfAnEmbeddingEngine) {
  const std::vector<std::string> models = Models(/*embed=*/true);
  EXPECT_GE(models.size(), 4U);
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    EngineOptions options = Options(model);
    options.pooling = Pooling::kMean;
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

// Latent attention caches kv_lora_rank + qk_rope_head_dim values per position; standard, its heads.
TEST(ModelPlan, LatentsTakeTheirRankAndTheirRotatedKey) {
  EngineOptions options =
      Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/hf/deepseek_v2_256");
  for (const MlaForm form :
       {MlaForm::kAbsorbed, MlaForm::kLatent, MlaForm::kAuto, MlaForm::kStandard}) {
    SCOPED_TRACE(Name(form));
    options.mla = form;
    const Result<ModelPlan> plan = PlanModel(options, 128, 4);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    ASSERT_EQ(plan->cache_groups.size(), 1U);
    // 2 layers, f32; kv_lora_rank 256, 2 heads, qk_rope_head_dim 32, qk_nope_head_dim and v 64.
    const bool standard = form == MlaForm::kStandard;
    const int64_t token_bytes = 2 * 4 * (standard ? 2 * (32 + 64 + 64) : 256 + 32);
    EXPECT_EQ(plan->cache_groups[0].token_bytes, token_bytes);
    EXPECT_EQ(plan->cache_groups[0].kind, standard ? "full" : "latent");
    const Result<EngineParts> parts = LoadParts(options);
    ASSERT_TRUE(parts.ok()) << parts.status().ToString();
    EXPECT_EQ(parts->replicas[0].executor->limits().cache.block_bytes,
              options.block_size * token_bytes);
    EXPECT_EQ(plan->block_bytes, options.block_size * token_bytes);
    EXPECT_EQ(plan->weight_bytes, parts->model.weight_bytes);
  }
}

TEST(ModelPlan, CountsTheExpertsThatATokenUses) {
  const Result<ModelPlan> plan = PlanModel(
      Options(std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/qwen3_moe_odd.gguf"), 128, 4);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  // 3 layers of 7 experts, of which a token uses 3; hidden size 66, intermediate size 37.
  const int64_t expert = 3 * 66 * 37;
  EXPECT_EQ(plan->num_parameters - plan->active_parameters, 3 * 4 * expert);
}

// Twice the sequences must take at least as long, and at most twice as long.
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

// A dummy Llama whose layers have about 12.8 * width * width parameters each.
std::string DummyLlama(int32_t layers, int32_t width) {
  std::string file = ::testing::TempDir() + fmt::format("plan_{}x{}.json", layers, width);
  std::ofstream(file) << fmt::format(
      R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": {},
          "intermediate_size": {}, "num_hidden_layers": {}, "num_attention_heads": {},
          "num_key_value_heads": 8, "vocab_size": 1024, "max_position_embeddings": 4096,
          "rms_norm_eps": 1e-5, "rope_theta": 10000, "hidden_act": "silu",
          "tie_word_embeddings": false}})",
      width, width / 2 * 7, layers, width / 128);
  return "dummy:" + file;
}

TEST(ModelPlan, NamesTheLayoutThatFits) {
  EngineOptions options = Options(DummyLlama(10, 32768));  // 275 GB
  options.device = "h200";
  options.precise = false;
  const auto plan = [&options](int32_t tp, int32_t pp) {
    options.tensor_parallel = tp;
    options.pipeline_parallel = pp;
    return PlanModel(options, 2048, 1).value();
  };
  EXPECT_EQ(plan(1, 1).layout_that_fits, "--tp 4");
  EXPECT_EQ(plan(2, 1).layout_that_fits, "--tp 4");  // half of the weights does not fit
  EXPECT_FALSE(plan(2, 1).fits());
  EXPECT_TRUE(plan(4, 1).fits());
  EXPECT_EQ(plan(4, 1).layout_that_fits, "");
  EXPECT_EQ(plan(4, 1).stored_bytes, plan(1, 1).stored_bytes);  // the file is the same
  options.model = DummyLlama(62, 32768);
  EXPECT_EQ(plan(1, 1).layout_that_fits, "--tp 8 --pp 2");
  EXPECT_TRUE(plan(8, 2).fits());
  EXPECT_FALSE(plan(8, 1).fits());
  options.model = DummyLlama(60, 65536);
  EXPECT_EQ(plan(1, 1).layout_that_fits, "");
}

TEST(ModelPlan, FewerReplicasFitOnCpus) {
  EngineOptions options = Options(DummyLlama(1, 4096));
  options.precise = false;
  options.data_parallel = 2;
  const ModelPlan one = PlanModel(options, 64, 1).value();
  const auto layers = static_cast<int32_t>(1.3 * static_cast<double>(one.hardware.memory_bytes) /
                                           static_cast<double>(one.weight_bytes));
  options.model = DummyLlama(layers, 4096);
  EXPECT_EQ(PlanModel(options, 64, 1)->layout_that_fits, "--dp 1");
  options.model = DummyLlama(3 * layers, 4096);
  EXPECT_EQ(PlanModel(options, 64, 1)->layout_that_fits, "");
}

TEST(ModelPlan, RefusesContextsThatTheModelDoesNotHave) {
  const std::string model = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf";
  EXPECT_THAT(PlanModel(Options(model), 4096, 4).status().ToString(), HasSubstr("512 positions"));
  EngineOptions options = Options(model);
  options.device = "abacus";
  EXPECT_THAT(PlanModel(options, 0, 4).status().ToString(), HasSubstr("one of h200"));
  const std::string encoder = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/hf/bert_odd";
  EXPECT_THAT(PlanModel(Options(encoder), 4096, 4).status().ToString(), HasSubstr("positions"));
  options = Options(encoder);
  options.device = "h200";
  EXPECT_TRUE(PlanModel(options, 0, 4).ok()) << PlanModel(options, 0, 4).status().ToString();
}

}  // namespace
}  // namespace tokamak
