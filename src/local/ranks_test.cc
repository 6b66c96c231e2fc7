// A model that is divided among ranks, behind the public Engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "local/model_plan.h"
#include "local/replay_file.h"
#include "local/testing/load_engine.h"
#include "tokamak/engine.h"

namespace tokamak {
namespace {

using testing::HasSubstr;

EngineOptions OnRanks(int32_t ranks, const std::string& model, int32_t stages = 1) {
  return {.model = TOKAMAK_SOURCE_DIR "/tests/golden/" + model,
          .device = "cpu",
          .precise = true,
          .threads = ranks * stages,
          .tensor_parallel = ranks,
          .pipeline_parallel = stages,
          .max_seqs = 4,
          .max_batch_tokens = 32,
          .num_blocks = 64};
}

std::vector<int32_t> Answer(Engine& engine, SamplingParams sampling, int32_t max_tokens = 40) {
  Request request;
  request.token_ids = {5, 9, 40, 3, 17, 100, 8};
  request.sampling = std::move(sampling);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  std::vector<int32_t> tokens;
  std::promise<Status> done;
  const auto id = engine.Submit(request, [&](const OutputChunk& chunk) {
    tokens.insert(tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    if (chunk.finish_reason) done.set_value(chunk.error);
  });
  EXPECT_TRUE(id.ok()) << id.status().ToString();
  const Status status = done.get_future().get();
  EXPECT_TRUE(status.ok()) << status.ToString();
  return tokens;
}

// Greedy and sampled, with drafts.
TEST(RanksOfAnEngine, DrawTheTokensOfASingleRank) {
  for (const char* model : {"llama_odd.gguf", "qwen3_moe_128.gguf", "hf/gemma2_odd"}) {
    std::vector<std::vector<int32_t>> expected;
    for (const int32_t ranks : {1, 2}) {
      const auto engine = Load(OnRanks(ranks, model));
      ASSERT_NE(engine, nullptr);
      const std::vector<std::vector<int32_t>> answers = {
          Answer(*engine, {.temperature = 0}), Answer(*engine, {.temperature = 1, .seed = 7}),
          Answer(*engine, {.temperature = 1, .top_p = 0.8, .seed = 9})};
      EXPECT_EQ(answers[0].size(), 40u);
      if (expected.empty()) expected = answers;
      EXPECT_EQ(answers, expected) << model;
    }
  }
}

// Each on a GPU of its own, with graphs. Precise, so that no sum is rounded to bf16.
TEST(CudaRanksOfAnEngine, DrawTheTokensOfASingleRank) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  std::vector<std::vector<int32_t>> expected;
  for (const int32_t ranks : {1, 2}) {
    EngineOptions options = OnRanks(ranks, "llama_odd.gguf");
    options.device = "cuda";
    options.threads = 2;
    options.max_seqs = 1;
    const auto engine = Load(options);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->model().device, "cuda:0");
    EXPECT_EQ(engine->stats().total_blocks, 64);
    const std::vector<std::vector<int32_t>> answers = {
        Answer(*engine, {.temperature = 0}, 8),
        Answer(*engine, {.temperature = 1, .top_p = 0.8, .seed = 9}, 8)};
    if (expected.empty()) expected = answers;
    EXPECT_EQ(answers, expected);
  }
}

TEST(CudaRanksOfAnEngine, NeedAGpuEach) {
  if (const std::string lack = LackOfGpus(1); !lack.empty()) GTEST_SKIP() << lack;
  EngineOptions options = OnRanks(2, "llama_odd.gguf");
  options.device = "cuda:1000";
  EXPECT_THAT(Engine::Load(options).status().ToString(),
              HasSubstr("devices 1000 to 1001 were asked for, one for each rank"));
}

TEST(RanksOfAnEngine, ShareMemoryAndThreads) {
  EngineOptions options = OnRanks(1, "llama_odd.gguf");
  options.threads = 4;
  const auto one = Load(options);
  options.tensor_parallel = 2;
  const auto two = Load(options);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_EQ(two->model().threads, 4);
  EXPECT_EQ(two->stats().total_blocks, 64);
  EXPECT_EQ(two->model().num_parameters, one->model().num_parameters);
  EXPECT_EQ(two->model().kv_token_bytes, one->model().kv_token_bytes);
  // Only norms and biases are on both ranks.
  EXPECT_GE(two->model().weight_bytes, one->model().weight_bytes);
  EXPECT_LT(two->model().weight_bytes, one->model().weight_bytes * 1.1);
  EXPECT_NE(two->system_fingerprint(), one->system_fingerprint());
}

// Records requests with a host tier, whose blocks differ in size between ranks, and replays them.
ReplayFileReport Replayed(EngineOptions options) {
  options.record_path = ::testing::TempDir() + "/ranks_test.rec";
  options.num_blocks = 12;
  options.host_cache_bytes = 1 << 20;
  {
    const auto engine = Load(options);
    if (engine == nullptr) return {};
    for (int i = 0; i < 6; ++i) {
      Request request;
      request.token_ids = std::vector<int32_t>(static_cast<size_t>(4 + 9 * i), i);
      request.sampling.max_tokens = 20;
      EXPECT_TRUE(engine->Submit(request, [](const OutputChunk&) {}).ok());
    }
    engine->Drain(60);
  }
  const auto report = ReplayFile({.path = options.record_path, .model = "", .threads = 2});
  std::remove(options.record_path.c_str());
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : ReplayFileReport();
}

TEST(RanksOfAnEngine, ReplayTheirRecord) {
  const ReplayFileReport report = Replayed(OnRanks(2, "llama_odd.gguf"));
  EXPECT_EQ(report.counts.requests, 6);
  EXPECT_GT(report.counts.tokens, 50);
  EXPECT_EQ(report.fingerprint, report.recorded_fingerprint);
}

// Rank 0 has 4 of 6 heads, 2 of 3 KV heads and half of the rest.
TEST(RanksOfAnEngine, ArePlannedByTheFirst) {
  const Result<ModelPlan> one = PlanModel(OnRanks(1, "llama_odd.gguf"), 0, 4);
  const Result<ModelPlan> two = PlanModel(OnRanks(2, "llama_odd.gguf"), 0, 4);
  ASSERT_TRUE(one.ok() && two.ok()) << two.status().ToString();
  EXPECT_EQ(two->ranks, 2);
  EXPECT_EQ(two->num_parameters, one->num_parameters);
  EXPECT_GT(two->weight_bytes, one->weight_bytes / 2);
  EXPECT_LT(two->weight_bytes, one->weight_bytes * 2 / 3);
  EXPECT_EQ(3 * two->cache_groups[0].token_bytes, 2 * one->cache_groups[0].token_bytes);
  const Result<ModelPlan> embeds = PlanModel(OnRanks(2, "hf/bert_odd"), 0, 4);
  EXPECT_EQ(embeds.status().message(), "tensor_parallel: models that embed run on one rank, got 2");
}

// The tokens and logprobs of all choices, as a client gets them.
struct FullAnswer {
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs, prompt_logprobs;
  friend bool operator==(const FullAnswer&, const FullAnswer&) = default;
};

std::vector<SamplingParams> ManyWays() {
  return {{.temperature = 0},
          {.temperature = 0, .logprobs = 3, .prompt_logprobs = 2},
          {.temperature = 1, .seed = 7, .n = 3, .logprobs = 1},
          {.temperature = 1, .top_p = 0.8, .frequency_penalty = 0.5, .seed = 9},
          {.temperature = 0, .n = 2, .logprobs = 0, .beam_search = BeamSearchParams{.width = 3}},
          {.temperature = 0, .repetition_penalty = 1.1, .min_tokens = 20}};
}

// All requests at once, so that they share steps. Each way is that of `times` requests.
std::vector<FullAnswer> AnswersTogether(Engine& engine, size_t times = 3, int32_t max_tokens = 24) {
  std::vector<FullAnswer> answers(times * ManyWays().size());
  std::vector<std::promise<Status>> done(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    Request request;
    for (size_t t = 0; t < 5 + 3 * i; ++t) {  // the longest take several steps
      request.token_ids.push_back(static_cast<int32_t>(t % 3 == 0 ? t : 40 + i + t));
    }
    request.sampling = ManyWays()[i % ManyWays().size()];
    request.sampling.max_tokens = max_tokens;
    request.sampling.min_tokens = std::min(request.sampling.min_tokens, max_tokens);
    request.sampling.ignore_eos = true;
    auto open = std::make_shared<int>(request.sampling.n);
    std::vector<FullAnswer> choices(static_cast<size_t>(*open));
    const auto on_output = [&answer = answers[i], &done = done[i], open,
                            choices](const OutputChunk& chunk) mutable {
      FullAnswer& choice = choices[static_cast<size_t>(chunk.choice)];
      const auto add = [](auto& all, const auto& more) {
        all.insert(all.end(), more.begin(), more.end());
      };
      add(choice.tokens, chunk.token_ids);
      add(choice.logprobs, chunk.logprobs);
      add(choice.prompt_logprobs, chunk.prompt_logprobs);
      if (!chunk.finish_reason || --*open > 0) return;
      for (const FullAnswer& one : choices) {
        add(answer.tokens, one.tokens);
        add(answer.logprobs, one.logprobs);
        add(answer.prompt_logprobs, one.prompt_logprobs);
      }
      done.set_value(chunk.error);
    };
    const auto id = engine.Submit(request, on_output);
    EXPECT_TRUE(id.ok()) << id.status().ToString();
  }
  for (std::promise<Status>& one : done) {
    const Status status = one.get_future().get();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return answers;
}

// In company, in chunks, with beams and preemptions, and again with cached prefixes. Some have
// drafts, if the measured times of steps say that these pay off.
TEST(StagesOfAnEngine, GiveTheBitsOfOneStage) {
  for (const std::string model :
       {"llama_odd.gguf", "qwen3_moe_odd.gguf", "hf/gemma3_odd", "hf/qwen35_odd"}) {
    const bool keeps_states = model == "hf/qwen35_odd";  // so no prefixes are cached
    for (const int32_t ranks : {1, 2}) {
      const auto one = Load(OnRanks(ranks, model));
      ASSERT_NE(one, nullptr);
      const std::vector<FullAnswer> expected = AnswersTogether(*one);
      for (const int32_t stages : {2, 3}) {
        EngineOptions options = OnRanks(ranks, model, stages);
        options.num_blocks = 40;
        const auto engine = Load(options);
        ASSERT_NE(engine, nullptr);
        EXPECT_EQ(AnswersTogether(*engine), expected) << model << " " << ranks << "x" << stages;
        EXPECT_EQ(AnswersTogether(*engine), expected) << model << " " << ranks << "x" << stages;
        EXPECT_EQ(engine->stats().cached_prompt_tokens > 0, !keeps_states);
      }
    }
  }
}

// Each rank on a GPU of its own. The default path rounds to bf16, at the same places.
TEST(CudaStagesOfAnEngine, GiveTheBitsOfOneStage) {
  if (const std::string lack = LackOfGpus(2); !lack.empty()) GTEST_SKIP() << lack;
  for (const std::string model : {"llama_odd.gguf", "qwen3_moe_odd.gguf"}) {
    const auto options = [&](int32_t ranks, int32_t stages) {
      EngineOptions o = OnRanks(ranks, model, stages);
      o.device = "cuda";
      o.precise = model == "llama_odd.gguf";
      return o;
    };
    std::map<int32_t, std::vector<FullAnswer>> expected;  // by ranks
    for (const auto& [ranks, stages] : {std::pair(1, 1), {1, 2}, {1, 3}, {2, 1}, {2, 2}}) {
      if (!LackOfGpus(ranks * stages).empty()) continue;
      const auto engine = Load(options(ranks, stages));
      ASSERT_NE(engine, nullptr);
      const std::vector<FullAnswer> answers = AnswersTogether(*engine, 1, 8);
      if (stages == 1) expected[ranks] = answers;
      EXPECT_EQ(answers, expected[ranks]) << model << " " << ranks << "x" << stages;
    }
  }
}

TEST(StagesOfAnEngine, ShareMemoryAndThreads) {
  EngineOptions options = OnRanks(1, "qwen3_moe_odd.gguf");
  options.threads = 4;
  const auto one = Load(options);
  options.pipeline_parallel = 2;
  const auto two = Load(options);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_EQ(two->model().threads, 4);
  EXPECT_EQ(two->stats().total_blocks, 64);
  EXPECT_EQ(two->model().num_parameters, one->model().num_parameters);
  EXPECT_EQ(two->model().weight_bytes, one->model().weight_bytes);
  EXPECT_EQ(two->model().expert_bytes, one->model().expert_bytes);
  EXPECT_EQ(two->model().kv_token_bytes, one->model().kv_token_bytes);
  // The bits are the same.
  EXPECT_EQ(two->system_fingerprint(), one->system_fingerprint());
}

TEST(StagesOfAnEngine, ReplayTheirRecord) {
  const ReplayFileReport report = Replayed(OnRanks(1, "llama_odd.gguf", 2));
  EXPECT_EQ(report.counts.requests, 6);
  EXPECT_GT(report.counts.tokens, 50);
}

// The output layer is the last stage's, so that has fewer layers if they are small.
TEST(StagesOfAnEngine, ArePlannedByTheFullest) {
  const Result<ModelPlan> one = PlanModel(OnRanks(1, "llama_odd.gguf"), 0, 4);
  const Result<ModelPlan> two = PlanModel(OnRanks(1, "llama_odd.gguf", 2), 0, 4);
  ASSERT_TRUE(one.ok() && two.ok()) << two.status().ToString();
  EXPECT_TRUE(one->stages.empty());
  ASSERT_EQ(two->stages.size(), 2u);
  const ModelPlan::Stage &first = two->stages[0], &last = two->stages[1];
  EXPECT_EQ(first.first_layer, 0);
  EXPECT_EQ(first.end_layer, last.first_layer);
  EXPECT_EQ(first.weight_bytes + last.weight_bytes, one->weight_bytes);
  EXPECT_EQ(first.token_bytes + last.token_bytes, one->cache_groups[0].token_bytes);
  const ModelPlan::Stage& fullest = two->stages[two->fullest_stage];
  EXPECT_EQ(two->weight_bytes, fullest.weight_bytes);
  EXPECT_EQ(two->cache_blocks, std::min(first.cache_blocks, last.cache_blocks));
  EXPECT_EQ(two->num_parameters, one->num_parameters);
  const Result<ModelPlan> embeds = PlanModel(OnRanks(1, "hf/bert_odd", 2), 0, 4);
  EXPECT_EQ(embeds.status().message(),
            "pipeline_parallel: models that embed run on one rank, got 2");
}

TEST(StagesOfAnEngine, LoadErrorsNameTheCause) {
  const auto error = [](const char* model, int32_t ranks, int32_t stages, int32_t threads = 64) {
    EngineOptions options = OnRanks(ranks, model, stages);
    options.threads = threads;
    const auto engine = Engine::Load(options);
    return engine.ok() ? "" : engine.status().ToString();
  };
  EXPECT_THAT(error("llama_odd.gguf", 1, 0),
              HasSubstr("pipeline_parallel: must be in [1, 64], got 0"));
  EXPECT_THAT(
      error("llama_odd.gguf", 16, 5),
      HasSubstr("pipeline_parallel: 5 stages of 16 ranks are 80; at most 64 are supported"));
  EXPECT_THAT(error("llama_odd.gguf", 1, 3, 2),
              HasSubstr("threads: 2 are not enough for pipeline_parallel=3"));
  EXPECT_THAT(error("llama_odd.gguf", 2, 2, 3),
              HasSubstr("threads: 3 are not enough for tensor_parallel=2 and pipeline_parallel=2"));
  EXPECT_THAT(error("llama_odd.gguf", 1, 9),
              HasSubstr("layers cannot be divided among 9 stages; 3 would work"));
  EXPECT_THAT(error("hf/qwen3_vl_odd", 1, 3), HasSubstr("must be on the first"));
}

TEST(RanksOfAnEngine, LoadErrorsNameTheCause) {
  const auto error = [](auto spoil) {
    EngineOptions options = OnRanks(2, "llama_odd.gguf");
    spoil(options);
    const auto engine = Engine::Load(options);
    return engine.ok() ? "" : engine.status().ToString();
  };
  EXPECT_THAT(error([](EngineOptions& o) { o.tensor_parallel = 0; }),
              HasSubstr("tensor_parallel: must be in [1, 64], got 0"));
  EXPECT_THAT(error([](EngineOptions& o) { o.threads = 1; }),
              HasSubstr("threads: 1 are not enough for tensor_parallel=2"));
  EXPECT_THAT(error([](EngineOptions& o) {
                o.device = "cuda";
                o.threads = 4;
                o.pipeline_parallel = 2;
                o.cuda_graphs = CudaGraphs::kOn;
              }),
              HasSubstr("cuda_graphs=on: is not supported with tensor_parallel=2 and "
                        "pipeline_parallel=2"));
  EXPECT_THAT(error([](EngineOptions& o) { o.pin_threads = true; }), HasSubstr("pin_threads: "));
  EXPECT_THAT(error([](EngineOptions& o) {
                o.speculate = Speculation::kDraft;
                o.draft_model = o.model;
              }),
              HasSubstr("speculate=draft: is not supported with tensor_parallel=2; use ngram"));
  EXPECT_THAT(error([](EngineOptions& o) { o.threads = o.tensor_parallel = 64; }),
              HasSubstr("cannot be divided among 64 ranks"));
}

}  // namespace
}  // namespace tokamak
