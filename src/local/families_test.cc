// Tests for every family that answers have the same bits on any schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/option_names.h"
#include "base/version.h"
#include "local/testing/load_engine.h"
#include "ops/cuda/cuda_ops.h"
#include "tokamak/engine.h"
#include "tokamak/engine_snapshot.h"

namespace tokamak {
namespace {

using Answers = std::vector<std::vector<std::pair<int32_t, float>>>;  // per prompt: ids, logprobs

std::vector<std::string> Generators() {
  std::vector<std::string> models;
  for (const auto& entry :
       std::filesystem::directory_iterator(TOKAMAK_SOURCE_DIR "/tests/golden/hf")) {
    const std::string name = entry.path().filename();
    const bool embeds = name.starts_with("bert") || name.ends_with("embedding");
    if (entry.is_directory() && !embeds) models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  return models;
}

struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<ImageData> images;
};

ImageData Picture(const std::string& name) {
  return {.bytes =
              ReadWholeFile(TOKAMAK_SOURCE_DIR "/tests/golden/images/" + name, 1 << 20).value()};
}

// Seven prompts: longer and longer prefixes of one text, each followed by tokens of its own. If the
// model takes images, all but the first have one in the text, and some one behind it, too.
std::vector<Prompt> Prompts(const ModelInfo& model) {
  std::mt19937 random(1);
  const int32_t placeholder = model.images ? model.images->placeholder_id : -1;
  const auto token = [&] {
    const auto drawn = static_cast<int32_t>(random() % static_cast<uint32_t>(model.vocab_size));
    return drawn == placeholder ? 0 : drawn;
  };
  std::vector<int32_t> text(42);
  std::generate(text.begin(), text.end(), token);
  if (model.images) text[11] = placeholder;
  std::vector<Prompt> prompts;
  for (int i = 0; i < 7; ++i) {
    Prompt& prompt = prompts.emplace_back();
    prompt.tokens.assign(text.begin(), text.begin() + 9 + 5 * i);
    for (int own = 0; own < 3 * i; ++own) prompt.tokens.push_back(token());
    if (!model.images || i == 0) continue;
    prompt.images.push_back(Picture("rgb.png"));
    if (i % 2 == 0) continue;
    prompt.tokens.push_back(placeholder);
    prompt.images.push_back(Picture(i == 1 ? "gray.jpg" : "lossy.webp"));
  }
  return prompts;
}

// Runs the prompts together or one after another. Together, a request before them holds the engine
// until all are submitted, so that timing decides nothing.
Answers Ask(Engine& engine, const std::vector<Prompt>& prompts, int32_t max_tokens, bool together) {
  Mutex mutex;
  CondVar changed;
  bool held = together;
  size_t open = 0;
  Answers answers(prompts.size());
  // No answer: holds the engine.
  const auto submit = [&](const Prompt& prompt, Answers::value_type* answer) {
    Request request;
    request.token_ids = prompt.tokens;
    request.images = prompt.images;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = answer != nullptr ? max_tokens : 1;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 1;
    {
      MutexLock lock(mutex);
      ++open;
    }
    const auto id = engine.Submit(request, [&, answer](const OutputChunk& chunk) {
      MutexLock lock(mutex);
      EXPECT_TRUE(chunk.error.ok()) << chunk.error.ToString();
      while (answer == nullptr && held) changed.Wait(mutex);
      for (size_t t = 0; answer != nullptr && t < chunk.token_ids.size(); ++t) {
        answer->emplace_back(chunk.token_ids[t], chunk.logprobs[t].token.logprob);
      }
      if (chunk.finish_reason && --open == 0) changed.NotifyAll();
    });
    EXPECT_TRUE(id.ok()) << id.status().ToString();
    MutexLock lock(mutex);
    if (!id.ok()) --open;
    while (open > 0 && !together) changed.Wait(mutex);
  };
  if (together) submit({.tokens = {1}, .images = {}}, nullptr);
  for (size_t i = 0; i < prompts.size(); ++i) submit(prompts[i], &answers[i]);
  MutexLock lock(mutex);
  held = false;
  changed.NotifyAll();
  while (open > 0) changed.Wait(mutex);
  return answers;
}

int32_t NumCacheGroups(Engine& engine) {
  std::promise<int32_t> groups;
  engine.Snapshot([&](const std::shared_ptr<const EngineSnapshot>& snapshot) {
    groups.set_value(snapshot->blocks.full_groups + snapshot->blocks.window_groups);
  });
  return groups.get_future().get();
}

// Linear attention keeps a state per sequence, so there is no prefix cache.
bool KeepsState(const std::string& model) {
  return ReadWholeFile(model + "/config.json", 1 << 20)->find("\"linear_attention\"") !=
         std::string::npos;
}

struct Work {
  size_t num_prompts = 7;  // the shortest ones
  int32_t max_tokens = 24;
  bool cached_alone = true;  // also asks one after another with a prefix cache
};

// The same also as on one stage.
void ExpectTheSameInAnySchedule(EngineOptions options, const Work& work = {}) {
  const bool caches = !KeepsState(options.model);
  options.threads = options.tensor_parallel * options.pipeline_parallel;
  const int32_t stages = std::exchange(options.pipeline_parallel, 1);
  options.max_seqs = 8;
  options.num_blocks = 500;
  options.prefix_cache = false;
  std::unique_ptr<Engine> engine = Load(options);
  ASSERT_NE(engine, nullptr);
  std::vector<Prompt> prompts = Prompts(engine->model());
  prompts.resize(work.num_prompts);
  const auto ask = [&](bool together) { return Ask(*engine, prompts, work.max_tokens, together); };
  const Answers cold = ask(/*together=*/false);

  options.pipeline_parallel = stages;
  options.prefix_cache = true;
  if (work.cached_alone) {
    engine = Load(options);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(ask(/*together=*/false), cold) << "some of it cached";
    EXPECT_EQ(ask(/*together=*/false), cold) << "all of it cached";
    EXPECT_EQ(engine->stats().cached_prompt_tokens > 0, caches);
  }

  // Two cache groups in spite of images, and steps with room for two whole images.
  const bool gemma3 = engine->model().architecture == "Gemma3ForConditionalGeneration";
  options.max_batch_tokens = gemma3 ? 18 : 13;
  // With one cache group, two of the longest sequences fit; with two groups, one. Prompts with
  // images share one: of these, hardly more than the longest fits.
  int32_t longest = 0;
  for (const Prompt& prompt : prompts) {
    auto positions = static_cast<int32_t>(prompt.tokens.size()) + work.max_tokens;
    for (const ImageData& image : prompt.images) {
      positions += static_cast<int32_t>(engine->PrepareImage(image.bytes)->tokens.size()) - 1;
    }
    longest = std::max(longest, positions);
  }
  options.image_cache_tokens = 1;  // room for one image
  const int32_t blocks = (longest + options.block_size - 1) / options.block_size;
  options.num_blocks = 2 * blocks;
  if (engine->model().images && !gemma3) {
    options.num_blocks = NumCacheGroups(*engine) == 1 ? blocks + 1 : blocks + blocks / 2;
  }
  engine = Load(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(ask(/*together=*/true), cold) << "together";
  EXPECT_EQ(ask(/*together=*/true), cold) << "together, cached";
  EXPECT_EQ(engine->stats().cached_prompt_tokens > 0, caches);
  // Few prompts that share an image may fit.
  if (!engine->model().images || work.num_prompts > 4) {
    EXPECT_GT(engine->stats().preemptions, 0);
  }
}

TEST(Families, AnswerAlikeInAnySchedule) {
  const std::vector<std::string> models = Generators();
  EXPECT_GE(models.size(), 30u);
  for (const std::string& model : models) {
    for (const bool precise : {true, false}) {
      SCOPED_TRACE(model + (precise ? ", precise" : ""));
      ExpectTheSameInAnySchedule(
          {.model = model, .device = "cpu", .precise = precise, .block_size = 4});
    }
  }
}

// One family of each kind of attention and feed-forward, and one with images.
TEST(Families, AnswerAlikeOnTwoRanks) {
  for (const std::string model : {"smollm3_odd", "olmo2_odd", "gpt_oss_odd", "deepseek_v3_256",
                                  "qwen2_vl_odd", "qwen35_odd"}) {
    SCOPED_TRACE(model);
    ExpectTheSameInAnySchedule({.model = TOKAMAK_SOURCE_DIR "/tests/golden/hf/" + model,
                                .device = "cpu",
                                .tensor_parallel = 2,
                                .block_size = 4});
  }
}

// Stages of a pipeline give the bits of one rank, or of one stage with as many ranks. The first
// stage of qwen35_128 has no attention, and a stage of qwen35_odd is an attention layer alone.
TEST(Families, AnswerAlikeOnStages) {
  struct Case {
    std::string model;
    int32_t ranks, stages;
  };
  for (const Case& c :
       {Case{"smollm3_odd", 1, 2}, Case{"gemma2_odd", 1, 3}, Case{"gpt_oss_odd", 1, 2},
        Case{"deepseek_v3_256", 2, 2}, Case{"qwen2_vl_odd", 1, 2}, Case{"gemma3_vision_odd", 1, 2},
        Case{"qwen35_128", 1, 2}, Case{"qwen35_odd", 1, 3}}) {
    SCOPED_TRACE(c.model);
    ExpectTheSameInAnySchedule({.model = TOKAMAK_SOURCE_DIR "/tests/golden/hf/" + c.model,
                                .device = "cpu",
                                .tensor_parallel = c.ranks,
                                .pipeline_parallel = c.stages,
                                .block_size = 4});
  }
}

// For a quarter of the models, which the commit picks, or for all with $TOKAMAK_ALL_LAYOUTS.
// Replicas and stages change no bits. Sums of several ranks are rounded at other places than those
// of one.
TEST(Families, AnswerAlikeInEveryLayout) {
  std::vector<std::string> models = Generators();
  for (const char* name : {"llama_odd", "llama_yarn", "qwen3_odd", "qwen3_moe_odd"}) {
    models.push_back(TOKAMAK_SOURCE_DIR "/tests/golden/" + std::string(name) + ".gguf");
  }
  const bool all = std::getenv("TOKAMAK_ALL_LAYOUTS") != nullptr;
  const std::string commit(Commit());
  size_t next = Hash64(commit.data(), commit.size());
  int num_divided = 0, num_staged = 0;
  for (const std::string& model : models) {
    if (!all && ++next % 4 != 0) continue;
    SCOPED_TRACE(model);
    const auto ask = [&](int32_t replicas, int32_t ranks, int32_t stages) {
      Result<std::unique_ptr<Engine>> engine = Engine::Load({.model = model,
                                                             .device = "cpu",
                                                             .precise = true,
                                                             .threads = replicas * ranks * stages,
                                                             .tensor_parallel = ranks,
                                                             .pipeline_parallel = stages,
                                                             .data_parallel = replicas,
                                                             .max_seqs = 8,
                                                             .block_size = 4,
                                                             .num_blocks = 500});
      if (engine.ok()) return Ask(**engine, Prompts((*engine)->model()), 24, /*together=*/true);
      EXPECT_NE(engine.status().message().find("cannot be divided among"), std::string::npos)
          << engine.status().ToString();
      return Answers();
    };
    const Answers one = ask(1, 1, 1), ranks = ask(2, 2, 1), stages = ask(1, 1, 2);
    EXPECT_EQ(one.size(), 7u);
    const bool staged = !stages.empty();
    if (staged) {
      EXPECT_EQ(stages, one);
      ++num_staged;
    }
    if (ranks.empty()) continue;
    ++num_divided;
    if (staged) {
      EXPECT_EQ(ask(1, 2, 2), ranks);
    }
    for (size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(ranks[i].size(), one[i].size());
      for (size_t t = 0; t < one[i].size(); ++t) {
        EXPECT_EQ(ranks[i][t].first, one[i][t].first) << "prompt " << i << ", token " << t;
        EXPECT_NEAR(ranks[i][t].second, one[i][t].second, 2e-4);
      }
    }
  }
  printf("%zu models: %d on ranks, %d on stages\n", models.size(), num_divided, num_staged);
  EXPECT_GE(num_divided, all ? 55 : 1);  // the others have one head
  EXPECT_GE(num_staged, all ? 60 : 1);
}

// "auto" may give different bits on different schedules.
TEST(Families, AnswerAlikeInEveryFormOfLatentAttention) {
  for (const MlaForm form : {MlaForm::kStandard, MlaForm::kLatent}) {
    SCOPED_TRACE(Name(form));
    ExpectTheSameInAnySchedule({.model = TOKAMAK_SOURCE_DIR "/tests/golden/hf/deepseek_v2_256",
                                .device = "cpu",
                                .mla = form,
                                .block_size = 4});
  }
}

// On the CUDA backend, with its newest kernels: less work, because an emulated GPU is slow.
// Attention on tensor cores needs blocks of 8.
class CudaFamilies : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, CudaFamilies, ::testing::ValuesIn(Generators()),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

TEST_P(CudaFamilies, AnswerAlikeInAnySchedule) {
  const Status status = MakeCudaOps({}).status();
  if (!status.ok()) GTEST_SKIP() << "no CUDA backend here: " << status.ToString();
  ExpectTheSameInAnySchedule(
      {.model = GetParam(), .device = "cuda", .kernels = KernelChoice::kNew, .block_size = 8},
      {.num_prompts = 4, .max_tokens = 30, .cached_alone = false});
}

class CudaStages : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, CudaStages, ::testing::ValuesIn(Generators()),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

// Each stage has a GPU of its own.
TEST_P(CudaStages, AnswerAsOneStageInAnySchedule) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  EngineOptions options = {.model = GetParam(),
                           .device = "cuda",
                           .kernels = KernelChoice::kNew,
                           .max_seqs = 8,
                           .block_size = 8,
                           .num_blocks = 500};
  const Result<std::unique_ptr<Engine>> one = Engine::Load(options);
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  options.pipeline_parallel = 2;
  const Result<std::unique_ptr<Engine>> two = Engine::Load(options);
  if (!two.ok()) {
    EXPECT_THAT(two.status().ToString(), ::testing::HasSubstr("cannot be divided among"));
    GTEST_SKIP() << two.status().message();
  }
  const auto answers = [](Engine& engine) {
    return Ask(engine, Prompts(engine.model()), 24, /*together=*/true);
  };
  EXPECT_EQ(answers(**two), answers(**one));
  ExpectTheSameInAnySchedule(options, {.num_prompts = 4, .max_tokens = 30, .cached_alone = false});
}

TEST(CudaStagesOfTwoRanks, AnswerAlike) {
  if (const std::string lack = LackOfGpus(4); !lack.empty()) GTEST_SKIP() << lack;
  ExpectTheSameInAnySchedule({.model = TOKAMAK_SOURCE_DIR "/tests/golden/hf/deepseek_v3_256",
                              .device = "cuda",
                              .kernels = KernelChoice::kNew,
                              .tensor_parallel = 2,
                              .pipeline_parallel = 2,
                              .block_size = 8},
                             {.num_prompts = 4, .max_tokens = 30, .cached_alone = false});
}

}  // namespace
}  // namespace tokamak
