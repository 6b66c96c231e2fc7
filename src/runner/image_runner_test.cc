// Rows of images have the bits that the encoder gives them alone, in any passes and company.
#include "runner/image_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/images.h"
#include "nn/testing/random_tensors.h"
#include "ops/cuda/cuda_ops.h"
#include "runner/testing/queued_ops.h"

namespace tokamak::testing {
namespace {

// A model, its images, and the rows that each becomes alone.
struct Eyes {
  Eyes(const std::string& name, std::unique_ptr<Ops> backend, DType dtype)
      : ops(std::move(backend)),
        model(LoadOrDie(TinyModelPath(name), *ops)),
        golden(ReadTinyGolden(name)),
        kv_dtype(dtype) {
    for (const GoldenImage& image : golden.images) {
      views.push_back(image.View());
      alone.push_back(EncodeImage(*model->image_encoder(), *ops, image.View(), dtype));
      order.push_back(order.size());
    }
  }

  const ImageEncoder& encoder() const { return *model->image_encoder(); }
  // A shape for passes of this many of the longest sequences.
  ImageRunnerShape Shape(int32_t sequences) const {
    const int32_t most = std::min(sequences, static_cast<int32_t>(golden.images.size()));
    return {.max_tokens = most * encoder().spec().max_sequence_len,
            .max_sequences = sequences,
            .kv_dtype = kv_dtype};
  }

  const std::unique_ptr<Ops> ops;
  const std::unique_ptr<Model> model;
  const TinyGolden golden;
  const DType kv_dtype;
  std::vector<ImageView> views;
  std::vector<ImageRows> alone;
  std::vector<size_t> order;  // 0, 1, ...
};

// Encodes the images in this order and expects their rows in a cache, in places that are far apart,
// and nothing else changed.
void ExpectRows(Eyes& eyes, ImageRunner& runner, const std::vector<size_t>& order) {
  Ops& ops = *eyes.ops;
  const auto hidden = static_cast<size_t>(eyes.encoder().spec().row_size);
  std::vector<ImageView> images;
  std::vector<std::vector<int32_t>> rows;
  int32_t next = 1;
  for (const size_t image : order) {
    images.push_back(eyes.views[image]);
    rows.emplace_back();
    for (size_t r = 0; r < eyes.alone[image].size(); ++r, next += 2) rows.back().push_back(next);
    std::reverse(rows.back().begin(), rows.back().end());
  }
  std::vector<float> values(static_cast<size_t>(next) * hidden, 7.0f), expected = values;
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t r = 0; r < rows[i].size(); ++r) {
      std::copy(eyes.alone[order[i]][r].begin(), eyes.alone[order[i]][r].end(),
                expected.begin() + static_cast<int64_t>(static_cast<size_t>(rows[i][r]) * hidden));
    }
  }
  Result<Buffer> memory = ops.Allocate(values.size() * sizeof(float), MemoryKind::kDevice);
  ASSERT_TRUE(memory.ok());
  const Tensor cache(memory->data(), DType::kF32, {next, static_cast<int64_t>(hidden)});
  const std::unique_ptr<Stream> stream = ops.MakeStream();
  ops.CopyToDevice(cache.data, values.data(), values.size() * sizeof(float), *stream);
  const Status status = runner.Encode(images, rows, cache, *stream);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ops.CopyToHost(values.data(), cache.data, values.size() * sizeof(float), *stream);
  ASSERT_TRUE(ops.Synchronize(*stream).ok());
  EXPECT_TRUE(values == expected);
}

std::unique_ptr<ImageRunner> MakeRunner(const Eyes& eyes, int32_t sequences) {
  Result<std::unique_ptr<ImageRunner>> runner =
      ImageRunner::Create(eyes.encoder(), *eyes.ops, eyes.Shape(sequences));
  CHECK_MSG(runner.ok(), runner.status().ToString());
  return *std::move(runner);
}

constexpr const char* kModels[] = {
    "hf/llava_odd",         "hf/llava_64",     "hf/llava_siglip",   "hf/llava_next_odd",
    "hf/llava_next_siglip", "hf/qwen2_vl_odd", "hf/qwen2_5_vl_odd", "hf/qwen3_vl_odd",
    "hf/glm4v_odd",         "hf/pixtral_odd",  "hf/mistral3_odd",   "hf/gemma3_vision_odd",
    "hf/minicpm_v_odd",     "hf/minicpm_v_4x"};

class ImageRunnerTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, ImageRunnerTest, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param).substr(3); });

TEST_P(ImageRunnerTest, PassesAndCompanyChangeNoBit) {
  for (const std::string& backend : {PreciseBackendNames().back(), BackendNames().back()}) {
    Eyes eyes(GetParam(), MakeBackend(backend), DType::kF16);
    for (const int32_t sequences : {1, 2, 32}) {
      const auto runner = MakeRunner(eyes, sequences);
      ExpectRows(eyes, *runner, eyes.order);
      ExpectRows(eyes, *runner, {2, 0});
      ExpectRows(eyes, *runner, {});
    }
  }
}

// Work that is done later, while the host goes on.
TEST_P(ImageRunnerTest, StagingMemoryIsFreeWhenItIsWritten) {
  Eyes eyes(GetParam(), MakeQueuedOps(MakeBackend(PreciseBackendNames().back()), 5), DType::kF32);
  const auto runner = MakeRunner(eyes, 1);
  ExpectRows(eyes, *runner, eyes.order);
  ExpectRows(eyes, *runner, {1, 2, 0});
}

TEST(ImageRunner, RefusesWhatItCannotRun) {
  Eyes eyes("hf/llava_odd", MakeBackend("cpu/baseline"), DType::kF32);
  ImageRunnerShape shape = eyes.Shape(1);
  shape.max_tokens = 16;  // and a class token
  EXPECT_EQ(ImageRunner::Create(eyes.encoder(), *eyes.ops, shape).status().ToString(),
            "invalid argument: an image takes passes of 17 tokens through the vision tower, but at "
            "most 16 fit");
  const auto runner = MakeRunner(eyes, 1);
  std::vector<float> values(16 * 42);
  const Tensor cache(values.data(), DType::kF32, {16, 42});
  const std::unique_ptr<Stream> stream = eyes.ops->MakeStream();
  const auto encode = [&](const std::vector<int32_t>& image_shape, size_t num_rows) {
    ImageView image = eyes.views[0];
    image.shape = image_shape;
    const std::vector<std::vector<int32_t>> rows = {std::vector<int32_t>(num_rows)};
    return runner->Encode({&image, 1}, rows, cache, *stream).ToString();
  };
  EXPECT_EQ(encode({1, 3, 22, 22}, 17),
            "invalid argument: image 0 of the step becomes 16 rows, not 17");
  EXPECT_EQ(encode({1, 3, 22, 23}, 16),
            "invalid argument: an image was prepared as [1, 3, 22, 23], but the model takes [1, 3, "
            "22, 22]: preprocessor_config.json does not fit config.json");
  EXPECT_EQ(values, std::vector<float>(16 * 42));
}

TEST(ImageRunner, MemoryIsThatOfAPass) {
  Eyes eyes("hf/llava_64", MakeBackend("cpu/baseline"), DType::kF16);
  const auto memory = ProfileImageRunner(eyes.encoder(), eyes.Shape(2));
  ASSERT_TRUE(memory.ok());
  // 50 tokens per sequence; keys and values of one layer, 64 wide.
  EXPECT_EQ(memory->num_blocks, 8);
  EXPECT_EQ(memory->cache_bytes, 8 * 16 * 2 * 64 * 2);
  EXPECT_GE(memory->staging_bytes, 100 * 3 * 14 * 14 * 4);
  // Patches, two layers, two features of every token to 48 and to 48.
  const int64_t layer = 4 * 64 * 64 + 2 * 64 * 96;
  EXPECT_EQ(memory->token_macs, 588 * 64 + 2 * layer + 128 * 48 + 48 * 48);
  EXPECT_EQ(MakeRunner(eyes, 2)->bytes(), memory->total_bytes() + memory->staging_bytes);
}

// A narrow image cut into a high grid: no tile shows it, but each of the many lines ends.
TEST(ImageRunner, LinesMayOutnumberTokens) {
  const std::unique_ptr<Ops> ops = MakeBackend("cpu/baseline");
  const std::string config = R"({"architectures": ["LlavaNextForConditionalGeneration"],
      "image_token_index": 7, "image_grid_pinpoints": [[800, 4]],
      "text_config": {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
        "max_position_embeddings": 256},
      "vision_config": {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 4, "patch_size": 2}})";
  const Result<std::unique_ptr<Model>> model = LoadModel(MakeRandomCheckpoint(config, 4), *ops);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const ImageEncoder& encoder = *(*model)->image_encoder();
  const Result<std::unique_ptr<ImageRunner>> runner =
      ImageRunner::Create(encoder, *ops, {.max_tokens = 5, .max_sequences = 1});
  ASSERT_TRUE(runner.ok());
  const std::vector<int32_t> shape = {201, 3, 4, 4};
  const std::vector<float> values = PixelValues(201 * 3 * 4 * 4, 1);
  const ImageView image = {shape, values, 200, 1, 1000, 1};
  std::vector<std::vector<int32_t>> rows(1, std::vector<int32_t>(4 + 400));
  std::iota(rows[0].begin(), rows[0].end(), 0);
  std::vector<float> out(rows[0].size() * 24);
  const Tensor cache(out.data(), DType::kF32, {static_cast<int64_t>(rows[0].size()), 24});
  const std::unique_ptr<Stream> stream = ops->MakeStream();
  ASSERT_TRUE((*runner)->Encode({&image, 1}, rows, cache, *stream).ok());
  const ImageRows expected = EncodeImage(encoder, *ops, image);
  for (size_t r = 0; r < expected.size(); ++r) {
    EXPECT_TRUE(std::equal(expected[r].begin(), expected[r].end(),
                           out.begin() + static_cast<int64_t>(r * 24)));
  }
}

// On the CUDA backend: with the newest kernels, with the plain ones, and precise.
class CudaImageRunner : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaImageRunner,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::Values("default", "plain", "precise")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)).substr(3) + "_" +
                                  std::get<1>(info.param);
                         });

TEST_P(CudaImageRunner, PassesAndCompanyChangeNoBit) {
  const std::string kernels = std::get<1>(GetParam());
  const bool precise = kernels == "precise";
  Result<std::unique_ptr<Ops>> ops =
      MakeCudaOps({.precise = precise,
                   .kernels = kernels == "plain" ? KernelChoice::kPlain : KernelChoice::kNew});
  if (!ops.ok()) GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
  Eyes eyes(std::get<0>(GetParam()), *std::move(ops), precise ? DType::kF32 : DType::kBF16);
  const auto runner = MakeRunner(eyes, 2);
  std::reverse(eyes.order.begin(), eyes.order.end());
  ExpectRows(eyes, *runner, eyes.order);
}

}  // namespace
}  // namespace tokamak::testing
