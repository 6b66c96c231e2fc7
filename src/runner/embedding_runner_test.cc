// Compares embedding models with goldens made with transformers and sentence-transformers' poolings
// (tests/golden/make_embedding_goldens.py), in batches, alone and in chunks.
#include "runner/embedding_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/check.h"
#include "models/registry.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "nn/testing/random_tensors.h"
#include "ops/cuda/cuda_ops.h"
#include "weights/checkpoint.h"

namespace tokamak::testing {
namespace {

using Vectors = std::vector<std::vector<float>>;
using Ids = std::vector<int32_t>;

struct Golden {
  std::vector<Ids> texts;
  std::vector<std::vector<double>> vectors;
};

Golden ReadGolden(const std::string& file) {
  std::ifstream stream(GoldenPath(file));
  CHECK_MSG(stream.good(), file);
  const nlohmann::json json = nlohmann::json::parse(stream);
  return {json.at("texts"), json.at("vectors")};
}

EmbeddingShape ShapeOf(const Checkpoint& checkpoint, int32_t max_tokens) {
  EmbeddingShape shape;
  shape.pooling = checkpoint.embedding->pooling;
  shape.normalize = checkpoint.embedding->normalize;
  shape.max_tokens = max_tokens;
  shape.max_texts = 8;
  shape.max_length = 300;
  return shape;
}

std::unique_ptr<EmbeddingRunner> MakeRunner(const Checkpoint& checkpoint,
                                            const EmbeddingShape& shape, std::unique_ptr<Ops> ops) {
  Result<std::unique_ptr<Model>> model = LoadModel(checkpoint, *ops, {.task = Task::kEmbed});
  CHECK_MSG(model.ok(), model.status().ToString());
  auto runner = EmbeddingRunner::Create(std::move(ops), *std::move(model), shape);
  CHECK_MSG(runner.ok(), runner.status().ToString());
  return *std::move(runner);
}
std::unique_ptr<EmbeddingRunner> MakeRunner(const Checkpoint& checkpoint,
                                            const EmbeddingShape& shape, const std::string& backend,
                                            int threads = 0) {
  return MakeRunner(checkpoint, shape, MakeBackend(backend, threads));
}

Vectors EmbedAll(EmbeddingRunner& runner, const std::vector<Ids>& texts) {
  std::vector<EmbeddingRunner::Text> spans(texts.begin(), texts.end());
  Result<Vectors> vectors = runner.Run(spans);
  CHECK_MSG(vectors.ok(), vectors.status().ToString());
  return *std::move(vectors);
}

double Worst(const Vectors& actual, const std::vector<std::vector<double>>& expected) {
  CHECK(actual.size() == expected.size());
  double worst = 0;
  for (size_t t = 0; t < actual.size(); ++t) {
    CHECK(actual[t].size() == expected[t].size());
    for (size_t i = 0; i < actual[t].size(); ++i) {
      const double error = std::abs(actual[t][i] - expected[t][i]);
      worst = error <= worst ? worst : error;  // NaN counts as the worst
    }
  }
  return worst;
}

Checkpoint Open(const std::string& path) {
  Result<Checkpoint> checkpoint = OpenCheckpoint(GoldenPath(path));
  CHECK_MSG(checkpoint.ok(), checkpoint.status().ToString());
  CHECK_MSG(checkpoint->embedding, path);
  return *std::move(checkpoint);
}

struct Tiny {
  const char* path;
  const char* golden;
};

std::string TestName(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
  return name;
}

class EmbeddingGoldenTest : public ::testing::TestWithParam<Tiny> {};
INSTANTIATE_TEST_SUITE_P(Models, EmbeddingGoldenTest,
                         ::testing::Values(Tiny{"hf/bert_odd", "hf/bert_odd.json"},
                                           Tiny{"bert_odd.gguf", "bert_odd.json"},
                                           Tiny{"hf/bert_64", "hf/bert_64.json"},
                                           Tiny{"hf/qwen3_embedding", "hf/qwen3_embedding.json"},
                                           Tiny{"qwen3_embedding.gguf", "hf/qwen3_embedding.json"}),
                         [](const auto& info) { return TestName(info.param.path); });

TEST_P(EmbeddingGoldenTest, VectorsEqualTheReference) {
  const Golden golden = ReadGolden(GetParam().golden);
  const Checkpoint checkpoint = Open(GetParam().path);
  const EmbeddingShape shape = ShapeOf(checkpoint, 2048);
  for (const std::string& backend : PreciseBackendNames()) {
    const auto runner = MakeRunner(checkpoint, shape, backend);
    EXPECT_LT(Worst(EmbedAll(*runner, golden.texts), golden.vectors), shape.normalize ? 1e-5 : 1e-4)
        << backend;
  }
  // Activations in bf16, if the machine multiplies bf16.
  const auto runner = MakeRunner(checkpoint, shape, BackendNames().back());
  EXPECT_LT(Worst(EmbedAll(*runner, golden.texts), golden.vectors), shape.normalize ? 0.03 : 0.3);
}

TEST_P(EmbeddingGoldenTest, BatchCutsAndThreadsChangeNoBit) {
  const Golden golden = ReadGolden(GetParam().golden);
  const Checkpoint checkpoint = Open(GetParam().path);
  const std::string backend = BackendNames().back();
  const auto together = MakeRunner(checkpoint, ShapeOf(checkpoint, 2048), backend);
  const Vectors expected = EmbedAll(*together, golden.texts);
  std::vector<Ids> reversed(golden.texts.rbegin(), golden.texts.rend());
  Vectors again = EmbedAll(*together, reversed);
  std::reverse(again.begin(), again.end());
  EXPECT_EQ(again, expected);
  const auto one_thread = MakeRunner(checkpoint, ShapeOf(checkpoint, 2048), backend, 1);
  // Causal models run a text that is too long for a step in several.
  const bool causal = checkpoint.architecture != "BertModel";
  const auto small = MakeRunner(checkpoint, ShapeOf(checkpoint, causal ? 37 : 300), backend);
  for (size_t t = 0; t < golden.texts.size(); ++t) {
    EXPECT_EQ(EmbedAll(*one_thread, {golden.texts[t]}).front(), expected[t]) << "text " << t;
    EXPECT_EQ(EmbedAll(*small, {golden.texts[t]}).front(), expected[t]) << "text " << t;
  }
}

// On the CUDA backend: with the newest kernels, with the plain ones, and precise.
class CudaEmbeddingTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    Models, CudaEmbeddingTest,
    ::testing::Combine(::testing::Values("bert_odd", "bert_64", "qwen3_embedding"),
                       ::testing::Values("default", "plain", "precise")),
    [](const auto& info) {
      return TestName(std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param));
    });

TEST_P(CudaEmbeddingTest, VectorsAreCloseAndTheBatchChangesNoBit) {
  const std::string path = "hf/" + std::string(std::get<0>(GetParam()));
  const std::string kernels = std::get<1>(GetParam());
  const bool precise = kernels == "precise";
  Result<std::unique_ptr<Ops>> ops =
      MakeCudaOps({.precise = precise,
                   .kernels = kernels == "plain" ? KernelChoice::kPlain : KernelChoice::kNew});
  if (!ops.ok()) GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
  const Golden golden = ReadGolden(path + ".json");
  const Checkpoint checkpoint = Open(path);
  EmbeddingShape shape = ShapeOf(checkpoint, 2048);
  shape.kv_dtype = precise ? DType::kF32 : DType::kBF16;
  const auto runner = MakeRunner(checkpoint, shape, *std::move(ops));
  const Vectors vectors = EmbedAll(*runner, golden.texts);
  const double worst = Worst(vectors, golden.vectors);
  printf("vectors differ by up to %.2g\n", worst);
  if (precise) {
    EXPECT_LT(worst, shape.normalize ? 1e-5 : 1e-4);
  } else {
    EXPECT_LT(worst, shape.normalize ? 0.03 : 0.3);
  }
  for (const size_t t : {size_t{0}, golden.texts.size() - 1}) {
    EXPECT_EQ(EmbedAll(*runner, {golden.texts[t]}).front(), vectors[t]) << "text " << t;
  }
}

TEST(EmbeddingRunner, PoolsAsTheNamesSay) {
  const Golden golden = ReadGolden("hf/bert_odd.json");
  const Checkpoint checkpoint = Open("hf/bert_odd");
  EmbeddingShape shape = ShapeOf(checkpoint, 512);
  shape.normalize = false;
  const Ids text = golden.texts[2];
  const auto with = [&](Pooling pooling) {
    shape.pooling = pooling;
    return EmbedAll(*MakeRunner(checkpoint, shape, "reference"), {text}).front();
  };
  EXPECT_LT(Worst({with(Pooling::kCls)}, {golden.vectors[2]}), 1e-4);
  const std::vector<float> last = with(Pooling::kLast), mean = with(Pooling::kMean);
  EXPECT_GT(Worst({last}, {golden.vectors[2]}), 0.1);
  EXPECT_GT(Worst({mean}, {golden.vectors[2]}), 0.1);
  shape.normalize = true;
  const std::vector<float> normal = with(Pooling::kMean);
  double squares = 0, dot = 0, mean_squares = 0;
  for (size_t i = 0; i < normal.size(); ++i) {
    squares += static_cast<double>(normal[i]) * normal[i];
    dot += static_cast<double>(normal[i]) * mean[i];
    mean_squares += static_cast<double>(mean[i]) * mean[i];
  }
  EXPECT_NEAR(squares, 1, 1e-6);
  EXPECT_NEAR(dot, std::sqrt(mean_squares), 1e-5);
}

TEST(EmbeddingRunner, TextsOfAnEncoderMustFitIntoAStep) {
  const Checkpoint checkpoint = Open("hf/bert_odd");
  std::unique_ptr<Ops> ops = MakeBackend("reference");
  auto model = LoadModel(checkpoint, *ops, {.task = Task::kEmbed});
  ASSERT_TRUE(model.ok());
  const auto runner =
      EmbeddingRunner::Create(std::move(ops), *std::move(model), ShapeOf(checkpoint, 299));
  EXPECT_EQ(runner.status().code(), StatusCode::kInvalidArgument);
}

TEST(EmbeddingRunner, AnEncoderGeneratesNothing) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto model = LoadModel(Open("hf/bert_odd"), *ops);
  EXPECT_EQ(model.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(model.status().ToString().find("encoder"), std::string::npos);
}

TEST(Bert, RefusesUnknownOptions) {
  const std::string start = R"({"architectures": ["BertModel"], "vocab_size": 40,
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4,
    "layer_norm_eps": 1e-5, "max_position_embeddings": 64, "type_vocab_size": 2)";
  for (const auto& [rest, field] : std::vector<std::pair<std::string, std::string>>{
           {R"(, "hidden_act": "relu"})", "hidden_act"},
           {"}", "hidden_act"},
           {R"(, "hidden_act": "gelu", "position_embedding_type": "relative_key"})",
            "position_embedding_type"},
           {R"(, "hidden_act": "gelu", "is_decoder": true})", "is_decoder"},
           {R"(, "hidden_act": "gelu", "rope_theta": 1.0})", "rope_theta"}}) {
    const std::unique_ptr<Ops> ops = MakeBackend("reference");
    const auto model = LoadModel(MakeRandomCheckpoint(start + rest), *ops, {.task = Task::kEmbed});
    EXPECT_NE(model.status().ToString().find(field), std::string::npos)
        << model.status().ToString();
  }
}

}  // namespace
}  // namespace tokamak::testing
