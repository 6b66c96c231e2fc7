// Tests on which device a model runs. A library in place of the CUDA backend acts as a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "tokamak/embed.h"
#include "tokamak/engine.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGoldens[] = TOKAMAK_SOURCE_DIR "/tests/golden/";
// An MoE model, one with latent attention, one with operations that only some backends have.
constexpr const char* kRefused[] = {"hf/mixtral_128.gguf", "hf/deepseek_v2_gguf.gguf",
                                    "hf/gpt_oss_64.gguf"};

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    const auto library = program.parent_path() / "libtokamak_fake_gpu.so";
    ASSERT_TRUE(std::filesystem::exists(library)) << library;
    ::setenv("TOKAMAK_CUDA_LIBRARY", library.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TOKAMAK_CUDA_LIBRARY");
    ::unsetenv("TOKAMAK_FAKE_GPU_BYTES");
  }

  // Loads the model; keeps the log in `log_`.
  template <typename Loaded = Engine>
  Result<std::unique_ptr<Loaded>> Load(const std::string& model, const std::string& device) {
    ::testing::internal::CaptureStderr();
    Result<std::unique_ptr<Loaded>> loaded =
        Loaded::Load({.model = model,
                      .device = device,
                      .threads = 1,
                      .max_seqs = 2,
                      .max_batch_tokens = 32,
                      .num_blocks = 64,
                      .on_load_progress = [this](double) { ++weights_read_; }});
    log_ = ::testing::internal::GetCapturedStderr();
    return loaded;
  }
  static std::vector<int32_t> Generate(Engine& engine) {
    Request request;
    request.token_ids = {1, 2, 3};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 5;
    request.sampling.ignore_eos = true;
    return engine.Generate(std::move(request)).value()[0].token_ids;
  }

  std::string log_;
  int weights_read_ = 0;
};

TEST_F(DeviceTest, AutoIsTheGpuForAModelThatItRuns) {
  const auto engine = Load(std::string(kGoldens) + "llama_odd.gguf", "auto");
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_EQ((*engine)->model().device, "cuda:0");
  EXPECT_EQ(log_, "");
  EXPECT_GT(weights_read_, 0);
  EXPECT_EQ(Generate(**engine).size(), 5u);
}

TEST_F(DeviceTest, AutoIsTheCpuForAModelThatTheGpuDoesNotSupport) {
  for (const char* name : kRefused) {
    const std::string model = std::string(kGoldens) + name;
    const auto engine = Load(model, "auto");
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    EXPECT_EQ((*engine)->model().device, "cpu");
    EXPECT_THAT((*engine)->model().backend, HasSubstr("cpu/"));
    EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
    EXPECT_THAT(log_, HasSubstr("running on the CPU, because the GPU cannot run this model: "));
    EXPECT_TRUE(log_.ends_with(", which the reference backend does not have\n")) << log_;
    const auto cpu = Load(model, "cpu");
    ASSERT_TRUE(cpu.ok()) << cpu.status().ToString();
    EXPECT_EQ(log_, "");
    EXPECT_EQ(Generate(**engine), Generate(**cpu)) << name;
  }
}

TEST_F(DeviceTest, ADraftModelRunsOnTheGpuToo) {
  EngineOptions options = {.model = std::string(kGoldens) + "llama_odd.gguf",
                           .device = "cuda",
                           .threads = 1,
                           .max_seqs = 2,
                           .max_batch_tokens = 32,
                           .num_blocks = 64,
                           .draft_model = std::string(kGoldens) + "llama_odd.gguf"};
  // All drafts are accepted, whether they pay or not, so the answer is the draft model's.
  options.synthetic_acceptance = 1;
  const auto answer = [](Engine& engine) {
    Request request;
    request.token_ids = {1, 2, 3};
    request.sampling.temperature = 1;
    request.sampling.seed = 5;
    request.sampling.max_tokens = 60;
    request.sampling.ignore_eos = true;
    return engine.Generate(std::move(request)).value()[0];
  };
  const auto with = Engine::Load(options);
  ASSERT_TRUE(with.ok()) << with.status().ToString();
  EXPECT_EQ((*with)->model().device, "cuda:0");
  const auto drafted = answer(**with);
  EXPECT_GT(drafted.timings.accepted_drafts, 0);
  EXPECT_EQ(drafted.timings.accepted_drafts, drafted.timings.drafts);
  options.draft_model.clear();
  options.synthetic_acceptance.reset();
  EXPECT_EQ(drafted.token_ids, answer(**Engine::Load(options)).token_ids);
}

TEST_F(DeviceTest, ADraftModelThatCannotRunIsRefusedBeforeWeightsAreRead) {
  EngineOptions options = {.model = std::string(kGoldens) + "llama_yarn.gguf",
                           .device = "cuda",
                           .threads = 1,
                           .on_load_progress = [this](double) { ++weights_read_; }};
  options.draft_model = std::string(kGoldens) + "qwen3_moe_128.gguf";
  const Status unsupported = Engine::Load(options).status();
  EXPECT_EQ(unsupported.code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(unsupported.message().starts_with("draft_model: ")) << unsupported.message();
  EXPECT_THAT(std::string(unsupported.message()),
              HasSubstr(", which the reference backend does not have; use device=cpu"));
  options.draft_model = std::string(kGoldens) + "llama_tied.gguf";
  const Status other_tokens = Engine::Load(options).status();
  EXPECT_EQ(other_tokens.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other_tokens.message()),
              HasSubstr("llama_tied.gguf has 320 tokens, but"));
  EXPECT_EQ(weights_read_, 0);
}

TEST_F(DeviceTest, EmbeddingModelsRunOnTheGpuToo) {
  const auto embed = [](Embedder& embedder) {
    EmbeddingRequest request;
    request.inputs = {{.token_ids = {1, 2, 3}}};
    return embedder.Embed(std::move(request)).value().vectors.front();
  };
  const std::string model = std::string(kGoldens) + "hf/qwen3_embedding";
  const auto gpu = Load<Embedder>(model, "auto");
  ASSERT_TRUE(gpu.ok()) << gpu.status().ToString();
  EXPECT_EQ((*gpu)->model().device, "cuda:0");
  const auto cpu = Load<Embedder>(model, "cpu");
  ASSERT_TRUE(cpu.ok()) << cpu.status().ToString();
  const std::vector<float> expected = embed(**cpu), actual = embed(**gpu);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 0.03);
  // An encoder needs optional features.
  const std::string encoder = std::string(kGoldens) + "hf/bert_64";
  EXPECT_THAT(Load<Embedder>(encoder, "cuda").status().ToString(),
              HasSubstr("which the reference backend does not have; use device=cpu"));
  EXPECT_EQ((*Load<Embedder>(encoder, "auto"))->model().device, "cpu");
}

TEST_F(DeviceTest, AutoIsTheCpuForAModelThatTheGpuHasNoRoomFor) {
  ::setenv("TOKAMAK_FAKE_GPU_BYTES", "1000", 1);
  const auto engine = Load(std::string(kGoldens) + "llama_odd.gguf", "auto");
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  EXPECT_EQ((*engine)->model().device, "cpu");
  EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1) << log_;
  EXPECT_THAT(log_, HasSubstr("the weights need"));
}

TEST_F(DeviceTest, ANamedGpuIsUsedOrRefused) {
  for (const char* name : kRefused) {
    const auto engine = Load(std::string(kGoldens) + name, "cuda");
    EXPECT_EQ(engine.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(engine.status().message()),
                HasSubstr(", which the reference backend does not have; use device=cpu"));
    EXPECT_EQ(log_, "");
    EXPECT_EQ(weights_read_, 0);
  }
  ::setenv("TOKAMAK_FAKE_GPU_BYTES", "1000", 1);
  const auto engine = Load(std::string(kGoldens) + "llama_odd.gguf", "cuda");
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
}

TEST_F(DeviceTest, AModelThatRunsNowhereIsAnErrorAndNoWarning) {
  const std::string config = ::testing::TempDir() + "/nowhere.json";
  std::FILE* file = std::fopen(config.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(R"({"architectures": ["NoSuchModel"]})", file);
  std::fclose(file);
  for (const char* device : {"auto", "cuda", "cpu"}) {
    const auto engine = Load("dummy:" + config, device);
    EXPECT_EQ(engine.status().code(), StatusCode::kUnimplemented);
    const std::string message(engine.status().message());
    EXPECT_THAT(message, HasSubstr("NoSuchModel"));
    EXPECT_THAT(message, Not(HasSubstr("device=")));
    EXPECT_EQ(log_, "");
  }
  std::filesystem::remove(config);
}

}  // namespace
}  // namespace tokamak
