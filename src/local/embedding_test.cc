// Tests embedding through the public Embedder, with a tiny random Qwen3-Embedding and, if
// scripts/setup-test-refs has fetched it, the real all-MiniLM-L6-v2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/testing/refs.h"
#include "models/testing/golden.h"
#include "ops/cuda/cuda_ops.h"
#include "tokamak/embed.h"
#include "tokamak/engine.h"

namespace tokamak::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

std::unique_ptr<Embedder> Load(const EngineOptions& options) {
  Result<std::unique_ptr<Embedder>> embedder = Embedder::Load(options);
  CHECK_MSG(embedder.ok(), embedder.status().ToString());
  return *std::move(embedder);
}

std::unique_ptr<Embedder> LoadTiny(EngineOptions options = {}) {
  options.model = GoldenPath("hf/qwen3_embedding");
  options.precise = true;
  return Load(options);
}

EmbeddingRequest OfTexts(const std::vector<std::string>& texts) {
  EmbeddingRequest request;
  for (const std::string& text : texts) request.inputs.push_back({.text = text});
  return request;
}

std::vector<std::vector<float>> Embed(Embedder& embedder, EmbeddingRequest request) {
  Result<EmbeddingOutput> output = embedder.Embed(std::move(request));
  CHECK_MSG(output.ok(), output.status().ToString());
  return std::move(output->vectors);
}

std::string ErrorOf(Embedder& embedder, EmbeddingRequest request) {
  return embedder.Embed(std::move(request)).status().ToString();
}

TEST(Embedding, TheModelSaysWhatItIs) {
  const auto embedder = LoadTiny();
  const ModelInfo& model = embedder->model();
  EXPECT_EQ(model.task, Task::kEmbed);
  EXPECT_EQ(model.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(model.embedding.dimensions, 42);
  EXPECT_EQ(model.embedding.pooling, Pooling::kLast);
  EXPECT_TRUE(model.embedding.normalized);
  EXPECT_THAT(model.embedding.prompts, ElementsAre("query", "document"));
  EXPECT_THAT(model.embedding.cut_dimensions, ElementsAre(16, 32, 42));
  EXPECT_EQ(model.max_context, 400);  // from tokenizer_config.json, below the model's 512
  EXPECT_TRUE(embedder->health().ok());
}

TEST(Embedding, AnEngineAndAnEmbedderRefuseEachOthersModels) {
  EngineOptions options = {.model = GoldenPath("hf/qwen3_embedding")};
  EXPECT_EQ(*FindTask(options), Task::kEmbed);
  const Status engine = Engine::Load(options).status();
  EXPECT_EQ(engine.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(engine.ToString(), HasSubstr("makes embeddings and cannot generate text"));
  options.model = GoldenPath("hf/qwen2_128");
  EXPECT_EQ(*FindTask(options), Task::kGenerate);
  const Status embedder = Embedder::Load(options).status();
  EXPECT_EQ(embedder.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(embedder.ToString(), HasSubstr("generates text and cannot make embeddings"));
  options.pooling = Pooling::kMean;
  EXPECT_EQ(*FindTask(options), Task::kEmbed);
  options.model = "/no/such.gguf";
  EXPECT_EQ(FindTask(options).status().code(), StatusCode::kNotFound);
}

TEST(Embedding, AppendsTheEndTokenToTexts) {
  const auto embedder = LoadTiny();
  const auto end = embedder->Tokenize("", true, false);
  ASSERT_TRUE(end.ok());
  ASSERT_EQ(end->size(), 1u);
  Ids ids = *embedder->Tokenize("cab", false, false);
  EmbeddingRequest tokens;
  tokens.inputs = {{.token_ids = ids}};
  ids.push_back(end->front());
  tokens.inputs.push_back({.token_ids = ids});
  const auto by_ids = Embed(*embedder, tokens);
  const auto by_text = Embed(*embedder, OfTexts({"cab", ""}));
  EXPECT_EQ(by_text[0], by_ids[1]);
  EXPECT_NE(by_text[0], by_ids[0]);
  tokens.inputs = {{.token_ids = *end}};
  EXPECT_EQ(by_text[1], Embed(*embedder, tokens).front());
  EmbeddingRequest bare = OfTexts({"cab"});
  bare.add_special_tokens = false;
  EXPECT_EQ(Embed(*embedder, bare).front(), by_ids[0]);
  EXPECT_EQ(embedder->Embed(OfTexts({"cab", ""}))->usage.prompt_tokens,
            static_cast<int32_t>(ids.size()) + 1);
}

TEST(Embedding, PrependsPrompts) {
  const auto embedder = LoadTiny();
  EmbeddingRequest query = OfTexts({"cab"});
  query.prompt_name = "query";
  EXPECT_EQ(Embed(*embedder, query), Embed(*embedder, OfTexts({"ab: cab"})));
  query.prompt_name = "document";
  EXPECT_EQ(Embed(*embedder, query), Embed(*embedder, OfTexts({"cab"})));
  query.prompt_name = "poem";
  EXPECT_THAT(ErrorOf(*embedder, query), HasSubstr("prompt_name: this model has no such prompt"));
}

TEST(Embedding, LongTextsAreRefusedUnlessTheyMayBeCut) {
  const auto embedder = LoadTiny();
  const std::string text(1000, 'c');
  EXPECT_EQ(embedder->Embed(OfTexts({text})).status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(ErrorOf(*embedder, OfTexts({"c", text})),
              HasSubstr("input[1]: has 1001 tokens, but this model takes at most 400"));
  EmbeddingRequest cut = OfTexts({text});
  cut.truncate_prompt_tokens = -1;
  EXPECT_EQ(Embed(*embedder, cut), Embed(*embedder, OfTexts({std::string(399, 'c')})));
  cut.truncate_prompt_tokens = 5;  // keeps the end token
  EXPECT_EQ(Embed(*embedder, cut), Embed(*embedder, OfTexts({"cccc"})));
  cut.truncate_prompt_tokens = 1000;
  EXPECT_EQ(Embed(*embedder, cut), Embed(*embedder, OfTexts({std::string(399, 'c')})));
  for (const int32_t wrong : {0, -2}) {
    cut.truncate_prompt_tokens = wrong;
    EXPECT_THAT(ErrorOf(*embedder, cut), HasSubstr("truncate_prompt_tokens: must be"));
  }
  EmbeddingRequest ids;
  ids.inputs = {{.token_ids = Ids(401, 3)}};
  EXPECT_THAT(ErrorOf(*embedder, ids), HasSubstr("input: has 401 tokens"));
  ids.truncate_prompt_tokens = 7;
  EmbeddingRequest seven;
  seven.inputs = {{.token_ids = Ids(7, 3)}};
  EXPECT_EQ(Embed(*embedder, ids), Embed(*embedder, seven));
}

TEST(Embedding, VectorsAreCutOnlyAsTheModelAllows) {
  const auto embedder = LoadTiny();
  const std::vector<float> whole = Embed(*embedder, OfTexts({"cab"})).front();
  EmbeddingRequest request = OfTexts({"cab"});
  request.dimensions = 16;
  const std::vector<float> cut = Embed(*embedder, request).front();
  ASSERT_EQ(cut.size(), 16u);
  double squares = 0;
  for (size_t i = 0; i < 16; ++i) squares += double{whole[i]} * whole[i];
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(cut[i], whole[i] / std::sqrt(squares), 1e-6);
  request.dimensions = 42;
  EXPECT_EQ(Embed(*embedder, request).front(), whole);
  for (const int32_t wrong : {17, 0, -1, 43}) {
    request.dimensions = wrong;
    EXPECT_THAT(ErrorOf(*embedder, request), HasSubstr("dimensions: ")) << wrong;
  }
  const auto encoder = Load({.model = GoldenPath("hf/bert_64"), .precise = true});
  request = {.inputs = {{.token_ids = {1, 2}}}, .dimensions = 16};
  EXPECT_THAT(ErrorOf(*encoder, request), HasSubstr("this model's vectors cannot be shortened"));
}

TEST(Embedding, BadInputIsNamed) {
  const auto embedder = LoadTiny();
  EXPECT_THAT(ErrorOf(*embedder, {}), HasSubstr("input: must not be empty"));
  EmbeddingRequest request;
  request.inputs = {{.token_ids = {1}}, {.token_ids = {1, 2, 264}}};
  EXPECT_THAT(ErrorOf(*embedder, request),
              HasSubstr("input[1][2]: token id 264 is outside [0, 264)"));
  request.inputs = {{.token_ids = {3, -1}}};
  EXPECT_THAT(ErrorOf(*embedder, request), HasSubstr("input[1]: token id -1"));
  request.inputs = {{}};
  EXPECT_THAT(ErrorOf(*embedder, request), HasSubstr("input: must hold at least one token"));
  const auto encoder = Load({.model = GoldenPath("hf/bert_64")});
  EXPECT_EQ(encoder->Embed(OfTexts({"a"})).status().code(), StatusCode::kUnimplemented);
}

TEST(Embedding, OptionsThatMakeNoSenseAreRefused) {
  const auto status = [](EngineOptions options) {
    if (options.model.empty()) options.model = GoldenPath("hf/qwen3_embedding");
    return Embedder::Load(options).status().ToString();
  };
  EXPECT_THAT(status({.record_path = "/tmp/none"}), HasSubstr("record_path: "));
  EXPECT_THAT(status({.max_context = 100000}), HasSubstr("longer than the model's 512"));
}

// A model without embedding files embeds if the options say how to pool.
TEST(Embedding, AnyDecoderEmbedsWhenItIsAskedTo) {
  const auto embedder =
      Load({.model = GoldenPath("hf/qwen2_128"), .precise = true, .pooling = Pooling::kMean});
  EXPECT_EQ(embedder->model().embedding.pooling, Pooling::kMean);
  EmbeddingRequest request = {.inputs = {{.token_ids = {1, 2, 3}}}};
  EXPECT_EQ(Embed(*embedder, request).front().size(), 128u);
}

// Requests of many texts and of one, from several threads, give the same bits as alone.
TEST(Embedding, ConcurrentRequestsGetTheSameBits) {
  const auto embedder = LoadTiny({.max_seqs = 5, .max_batch_tokens = 40});
  std::vector<std::string> texts;
  for (int i = 0; i < 60; ++i)
    texts.push_back(std::string(static_cast<size_t>(i % 23), 'a' + i % 26));
  std::vector<std::vector<float>> expected;
  for (const std::string& text : texts)
    expected.push_back(Embed(*embedder, OfTexts({text})).front());
  std::vector<std::future<std::vector<std::vector<float>>>> answers;
  for (int thread = 0; thread < 3; ++thread) {
    answers.push_back(
        std::async(std::launch::async, [&] { return Embed(*embedder, OfTexts(texts)); }));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(Embed(*embedder, OfTexts({texts[i]})).front(), expected[i]) << i;
  }
  for (auto& answer : answers) EXPECT_EQ(answer.get(), expected);
  const EngineStats stats = embedder->stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.ended_requests[static_cast<size_t>(FinishReason::kStop)], 123);
  EXPECT_EQ(stats.end_to_end.count(), 123);
  EXPECT_EQ(stats.step_tokens, stats.prompt_tokens);
}

// Submits more texts than any test waits for. Returns how the request ends.
std::future<Status> SubmitMany(Embedder& embedder, RequestId* id = nullptr) {
  const auto ended = std::make_shared<std::promise<Status>>();
  const auto request =
      embedder.Submit(OfTexts(std::vector<std::string>(2000, std::string(300, 'c'))),
                      [ended](const EmbeddingOutput& o) { ended->set_value(o.error); });
  CHECK_MSG(request.ok(), request.status().ToString());
  if (id != nullptr) *id = *request;
  return ended->get_future();
}

// A cancelled request gets one callback, and those behind it go on.
TEST(Embedding, CancelledRequestsEnd) {
  const auto embedder = LoadTiny();
  RequestId id = 0;
  std::future<Status> ended = SubmitMany(*embedder, &id);
  embedder->Cancel(id);
  embedder->Cancel(12345);
  EXPECT_EQ(ended.get().code(), StatusCode::kCancelled);
  EXPECT_EQ(Embed(*embedder, OfTexts({"a"})).size(), 1u);
  EXPECT_EQ(embedder->stats().ended_requests[static_cast<size_t>(FinishReason::kCancelled)], 1);
}

TEST(Embedding, ADrainedEmbedderRefusesRequests) {
  const auto embedder = LoadTiny();
  std::future<Status> ended = SubmitMany(*embedder);
  embedder->Drain(0);
  EXPECT_EQ(ended.get().code(), StatusCode::kCancelled);
  EXPECT_EQ(embedder->Embed(OfTexts({"a"})).status().code(), StatusCode::kUnavailable);
}

TEST(Embedding, AFullQueueRefuses) {
  const auto embedder = LoadTiny({.max_queue = 1});
  (void)SubmitMany(*embedder);
  EXPECT_EQ(embedder->Embed(OfTexts({"a"})).status().code(), StatusCode::kUnavailable);
}

struct MiniLmText {
  std::string text;
  Ids tokens;
  bool cut = false;
  std::vector<double> vector;
};

std::vector<MiniLmText> ReadMiniLm() {
  std::ifstream stream(GoldenPath("minilm.json"));
  CHECK(stream.good());
  const auto json = nlohmann::json::parse(stream);
  std::vector<MiniLmText> texts;
  for (const auto& item : json.at("texts")) {
    texts.push_back({item.at("text"), item.at("tokens"), item.at("cut"), item.at("vector")});
  }
  return texts;
}

double WorstDifference(const std::vector<float>& actual, const std::vector<double>& expected) {
  CHECK(actual.size() == expected.size());
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    worst = difference <= worst ? worst : difference;
  }
  return worst;
}

TEST(MiniLm, VectorsEqualTheReference) {
  const auto folder = FindRef("all-MiniLM-L6-v2");
  SKIP_WITHOUT(folder);
  const auto embedder = Load({.model = *folder});
  EXPECT_EQ(embedder->model().max_context, 256);
  double worst = 0;
  std::vector<std::string> texts;
  const std::vector<MiniLmText> goldens = ReadMiniLm();
  for (const MiniLmText& golden : goldens) {
    EmbeddingRequest request = OfTexts({golden.text});
    request.parse_special_tokens = true;
    if (golden.cut) {
      EXPECT_EQ(embedder->Embed(request).status().code(), StatusCode::kResourceExhausted);
      request.truncate_prompt_tokens = -1;
    }
    const auto tokens = embedder->TokenizeInputs(request);
    ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
    EXPECT_EQ(tokens->inputs.front().token_ids, golden.tokens) << golden.text;
    const double difference = WorstDifference(Embed(*embedder, request).front(), golden.vector);
    EXPECT_LT(difference, 1e-5) << golden.text;
    worst = std::max(worst, difference);
    texts.push_back(golden.text);
  }
  printf("worst difference: %g\n", worst);
  EmbeddingRequest all = OfTexts(texts);
  all.parse_special_tokens = true;
  all.truncate_prompt_tokens = -1;
  const auto together = Embed(*embedder, all);
  for (size_t i = 0; i < texts.size(); ++i) {
    EmbeddingRequest one = OfTexts({texts[i]});
    one.parse_special_tokens = true;
    one.truncate_prompt_tokens = -1;
    EXPECT_EQ(Embed(*embedder, one).front(), together[i]) << texts[i];
  }
}

// Few words, because an emulated GPU is slow. The limit of the default path is that of
// CudaEmbeddingTest.
TEST(CudaMiniLm, VectorsOfShortTextsEqualTheReference) {
  const auto folder = FindRef("all-MiniLM-L6-v2");
  SKIP_WITHOUT(folder);
  const Status status = MakeCudaOps({}).status();
  if (!status.ok()) GTEST_SKIP() << "no CUDA backend here: " << status.ToString();
  for (const bool precise : {false, true}) {
    const auto embedder = Load({.model = *folder,
                                .device = "cuda",
                                .precise = precise,
                                .kernels = KernelChoice::kNew,
                                .max_seqs = 4});
    for (const MiniLmText& golden : ReadMiniLm()) {
      if (golden.tokens.size() > 7) continue;
      const auto vectors = Embed(*embedder, OfTexts({golden.text}));
      EXPECT_LT(WorstDifference(vectors.front(), golden.vector), precise ? 1e-5 : 0.03)
          << golden.text;
    }
  }
}

}  // namespace
}  // namespace tokamak::testing
