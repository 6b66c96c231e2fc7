// Steps with images: what they do to answers, and that schedules do nothing to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "models/testing/golden.h"
#include "ops/cpu/cpu_ops.h"
#include "runner/memory_profile.h"
#include "runner/runner.h"
#include "runner/testing/driver.h"
#include "runner/testing/queued_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

constexpr RunnerMemory kMemory = {
    .arena_bytes = 32 << 20, .num_device_blocks = 3000, .num_host_blocks = 3000};
constexpr int32_t kVocab = 96;
constexpr int32_t kImages = 6;  // the last tokens are their placeholders

std::unique_ptr<Ops> MakeCpu(int threads = 1) { return *MakeCpuOps({.threads = threads}); }

EncodeImage MakeImage(int32_t index) {
  std::mt19937_64 random(static_cast<uint64_t>(index) + 1000);
  std::normal_distribution<float> normal;
  EncodeImage image{.id = static_cast<ImageId>(index) + 1, .num_rows = 3 + 4 * index};
  image.shape = {image.num_rows, 4};
  for (int32_t i = 0; i < 4 * image.num_rows; ++i) image.values.push_back(normal(random));
  return image;
}

void Append(const EncodeImage& image, DriverRequest* request) {
  request->images.push_back({.span = {.position = static_cast<int32_t>(request->prompt.size()),
                                      .image = image.id,
                                      .num_rows = image.num_rows},
                             .image = image});
  request->prompt.insert(request->prompt.end(), static_cast<size_t>(image.num_rows),
                         kVocab - static_cast<TokenId>(image.id));
}

DriverRequest Greedy(int32_t num_generated) {
  DriverRequest request;
  request.sampling = {.temperature = 0, .seed = 1, .logprobs = 1};
  request.num_generated = num_generated;
  return request;
}

// Text and images by turns. Some prompts begin alike, and some end with an image.
std::vector<DriverRequest> RandomRequests(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto text = [&](DriverRequest* request) {
    for (uint64_t i = random() % 12; i > 0; --i) {
      request->prompt.push_back(static_cast<TokenId>(random() % (kVocab - kImages)));
    }
  };
  DriverRequest stem;
  stem.prompt = {1, 2, 3};
  Append(MakeImage(2), &stem);
  text(&stem);
  std::vector<DriverRequest> requests;
  for (int i = 0; i < count; ++i) {
    DriverRequest request = stem;
    if (random() % 2 == 0) {
      request.images.clear();
      request.prompt = {4, 5};
    }
    for (uint64_t images = random() % 4; images > 0; --images) {
      text(&request);
      Append(MakeImage(static_cast<int32_t>(random() % kImages)), &request);
    }
    if (random() % 2 == 0) text(&request);
    request.sampling = {.seed = random(), .logprobs = 1};
    if (random() % 4 == 0) request.sampling.prompt_logprobs = 1;
    request.num_generated = 1 + static_cast<int32_t>(random() % 12);
    requests.push_back(std::move(request));
  }
  return requests;
}

RunnerShape Shape(int depth) {
  return {.max_seqs = 12,
          .max_step_tokens = 48,
          .max_step_drafts = 16,
          .max_context = 200,
          .block_size = 4,
          .max_encoder_rows = 40,
          .max_step_image_rows = 30,
          .depth = depth};
}

std::vector<DriverResult> DriveOn(const Model& model, Ops& ops, const RunnerShape& shape,
                                  const std::vector<DriverRequest>& requests,
                                  const DriverOptions& options, DriverCounts* counts = nullptr) {
  auto runner = Runner::Create(model, ops, shape, kMemory);
  CHECK_MSG(runner.ok(), runner.status().ToString());
  return Drive(**runner, requests, options, counts);
}

std::vector<DriverResult> Alone(const std::vector<DriverRequest>& requests,
                                const ToyConfig& config = {.sees = true}) {
  const auto ops = MakeCpu();
  const auto model = MakeToyModel(*ops, config);
  RunnerShape shape = Shape(1);
  shape.max_step_tokens = 200;  // each prompt in one row
  shape.max_encoder_rows = shape.max_step_image_rows = 200;
  return DriveOn(*model, *ops, shape, requests, {.max_concurrent = 1});
}

// The images of a golden's prompt, once for each of their runs of placeholders.
std::vector<DriverImage> ImagesOf(const TinyGolden& golden, int32_t placeholder) {
  std::vector<DriverImage> shown;
  const std::vector<int32_t>& prompt = golden.greedy.prompt;
  const auto is_row = [&](int32_t token) { return token == placeholder; };
  auto next = std::find_if(prompt.begin(), prompt.end(), is_row);
  for (const GoldenImage& golden_image : golden.images) {
    const auto num_rows = static_cast<int32_t>(golden_image.num_rows);
    const EncodeImage image = {.id = shown.size() + 1,
                               .shape = golden_image.shape,
                               .grid_height = golden_image.grid[0],
                               .grid_width = golden_image.grid[1],
                               .image_height = golden_image.size[0],
                               .image_width = golden_image.size[1],
                               .num_rows = num_rows,
                               .values = golden_image.values};
    for (int32_t row = 0; row < num_rows && next != prompt.end();) {
      const auto end = std::find_if_not(next, prompt.end(), is_row);
      const auto rows = static_cast<int32_t>(std::min<int64_t>(end - next, num_rows - row));
      shown.push_back({.span = {.position = static_cast<int32_t>(next - prompt.begin()),
                                .image = image.id,
                                .first_row = row,
                                .num_rows = rows},
                       .image = image});
      row += rows;
      next = std::find_if(next + rows, prompt.end(), is_row);
    }
  }
  return shown;
}

// Models with a whole tower, in f32 like the reference. Chunks of 7 tokens cut through every image.
TEST(RunnerImages, GreedyTokensEqualTheReference) {
  const std::unique_ptr<Ops> ops = *MakeCpuOps({.threads = 1, .isa = "baseline"});
  for (const std::string name :
       {"hf/llava_odd", "hf/llava_64", "hf/llava_siglip", "hf/llava_next_odd",
        "hf/llava_next_siglip", "hf/pixtral_odd", "hf/minicpm_v_odd", "hf/minicpm_v_4x",
        "hf/minicpm_v_35", "hf/mistral3_odd", "hf/mistral3_64", "hf/gemma3_vision_odd",
        "hf/gemma3_vision_256"}) {
    const auto model = LoadOrDie(GoldenPath(name), *ops);
    const TinyGolden golden = ReadTinyGolden(name);
    DriverRequest request = Greedy(static_cast<int32_t>(golden.greedy.tokens.size()));
    request.prompt = golden.greedy.prompt;
    request.images = ImagesOf(golden, model->spec().image_token);
    ASSERT_FALSE(request.images.empty()) << name;
    RunnerShape shape = Shape(2);
    shape.max_encoder_rows = shape.max_step_image_rows = 100;
    const auto results = DriveOn(*model, *ops, shape, {request}, {.chunk = 7});
    EXPECT_EQ(results[0].tokens, golden.greedy.tokens) << name;
  }
}

// Whether the positions of an image see each other.
class RunnerImagesTest : public ::testing::TestWithParam<bool> {
 protected:
  const ToyConfig config_ = {.sees = true, .bidirectional_images = GetParam()};
};
INSTANTIATE_TEST_SUITE_P(All, RunnerImagesTest, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Bidirectional" : "Causal");
});

// A queued device delays all work, and reorders what nothing orders.
TEST_P(RunnerImagesTest, AnswersDoNotDependOnTheSchedule) {
  const auto requests = RandomRequests(40, 7);
  const std::vector<DriverResult> expected = Alone(requests, config_);
  DriverCounts total;
  for (const int depth : {1, 2, 4}) {
    for (const bool queued : {false, true}) {
      SCOPED_TRACE("depth " + std::to_string(depth) + (queued ? ", queued" : ""));
      std::unique_ptr<Ops> ops = MakeCpu(2);
      if (queued) ops = MakeQueuedOps(std::move(ops), 5);
      const auto model = MakeToyModel(*ops, config_);
      RunnerShape shape = Shape(depth);
      if (queued) shape.cuda_graphs = CudaGraphs::kOn;
      DriverCounts counts;
      const auto results = DriveOn(*model, *ops, shape, requests,
                                   {.seed = static_cast<uint64_t>(depth),
                                    .max_concurrent = 9,
                                    .chunk = 32,
                                    .random_chunks = true,
                                    .recompute = 0.1,
                                    .swap = 0.1,
                                    .forget = 0.2,
                                    .share = 0.7,
                                    .drafts = &expected},
                                   &counts);
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i], expected[i]) << "request " << i;
      }
      total.encoded += counts.encoded;
      total.cut_through += counts.cut_through;
      total.begun_within += counts.begun_within;
      total.recomputed += counts.recomputed;
      total.shared += counts.shared;
    }
  }
  EXPECT_GT(total.encoded, 100);
  if (GetParam()) {
    EXPECT_EQ(total.cut_through, 0);
    EXPECT_GT(total.begun_within, 5);  // where shared blocks end
  } else {
    EXPECT_GT(total.cut_through, 100);
  }
  EXPECT_GT(total.recomputed, 10);
  EXPECT_GT(total.shared, 20);
}

// An image's last row, but no later position, changes what is known behind its first one.
TEST_P(RunnerImagesTest, PositionsOfAnImageSeeItsLastRow) {
  DriverRequest request = Greedy(1);
  request.prompt = {1, 2};
  request.sampling.prompt_logprobs = 1;
  Append(MakeImage(1), &request);
  request.prompt.insert(request.prompt.end(), {3, 4});
  const auto at = [&](int32_t position) {
    return Alone({request}, config_)[0].prompt_logprobs.at(position);
  };
  const TokenLogprobs text = at(2), first = at(3), last = at(9);  // of positions 1, 2 and 8
  request.prompt.back() = 5;
  EXPECT_EQ(at(3), first);
  request.images[0].image.values.back() += 0.5f;
  EXPECT_EQ(at(2), text);
  EXPECT_EQ(at(3) == first, !GetParam());
  EXPECT_NE(at(9), last);
}

TEST(RunnerImages, NoRowEndsInABidirectionalImage) {
  const auto ops = MakeCpu();
  const auto model = MakeToyModel(*ops, {.sees = true, .bidirectional_images = true});
  const auto runner = Runner::Create(*model, *ops, Shape(1), kMemory);
  ASSERT_TRUE(runner.ok());
  EXPECT_EQ((*runner)->whole_image_rows(), 24);
  DriverRequest request = Greedy(1);
  request.prompt = {1, 2};
  Append(MakeImage(1), &request);
  StepInput step = {.encode = {request.images[0].image},
                    .admit = {{.slot = 0,
                               .tokens = request.prompt,
                               .num_prompt_tokens = 9,
                               .sampling = request.sampling,
                               .images = {request.images[0].span}}},
                    .append = {{.slot = 0, .group = 0, .blocks = {1, 2, 3}},
                               {.slot = 0, .group = 1, .blocks = {4, 5, 6}}},
                    .rows = {{.slot = 0, .num_tokens = 8}}};
  EXPECT_EQ((*runner)->Submit(step).message(),
            "step 0: rows: slot 0: positions 2 to 7 show image 2, but not its last 1 rows");
}

// Without this the tests above would prove little.
TEST_P(RunnerImagesTest, AnswersDependOnEveryImage) {
  DriverRequest request = Greedy(4);
  Append(MakeImage(1), &request);
  Append(MakeImage(3), &request);
  const DriverResult answer = Alone({request}, config_)[0];
  for (DriverImage& shown : request.images) {
    const EncodeImage whole = shown.image;
    for (float& value :
         {std::ref(shown.image.values.front()), std::ref(shown.image.values.back())}) {
      value += 0.5f;
      EXPECT_NE(Alone({request}, config_)[0].logprobs, answer.logprobs);
      shown.image = whole;
    }
  }
  DriverRequest other = request;
  for (TokenId& token : other.prompt) token = 0;  // placeholders mean nothing
  EXPECT_EQ(Alone({other}, config_)[0].logprobs, answer.logprobs);
}

TEST(RunnerImages, ShowsOnlyTheRowsOfASpan) {
  const EncodeImage image = MakeImage(2);
  DriverRequest whole = Greedy(2);
  Append(image, &whole);
  // The same rows in two spans.
  DriverRequest halves = whole;
  halves.images.push_back(halves.images[0]);
  halves.images[0].span.num_rows = 4;
  halves.images[1].span.position = halves.images[1].span.first_row = 4;
  halves.images[1].span.num_rows = image.num_rows - 4;
  EXPECT_EQ(Alone({halves}), Alone({whole}));
  halves.images[1].span.first_row = 3;
  EXPECT_NE(Alone({halves}), Alone({whole}));
}

TEST(RunnerImages, NeedAModelThatSees) {
  const auto ops = MakeCpu();
  const auto model = MakeToyModel(*ops);
  const Status status = Runner::Create(*model, *ops, Shape(1), kMemory).status();
  EXPECT_EQ(status.message(), "max_encoder_rows: is 40, but the model has no image encoder");
}

TEST(RunnerImages, MemoryIsAsProfiled) {
  const auto ops = MakeCpu();
  const auto model = MakeToyModel(*ops, {.sees = true});
  RunnerShape shape = Shape(2);
  const auto profile = [&] {
    return *ProfileMemory(*model, *MakeCountOps(), shape, {.available_bytes = 1 << 30});
  };
  const auto bytes = [&] { return (*Runner::Create(*model, *ops, shape, kMemory))->bytes(); };
  const MemoryProfile with_images = profile();
  const int64_t bytes_with_images = bytes();
  shape.max_encoder_rows = shape.max_step_image_rows = 0;
  const MemoryProfile without = profile();
  EXPECT_EQ(without.encoder_bytes, 0);
  EXPECT_EQ(bytes_with_images - bytes(),
            with_images.encoder_bytes + with_images.staging_bytes - without.staging_bytes);
}

}  // namespace
}  // namespace tokamak::testing
