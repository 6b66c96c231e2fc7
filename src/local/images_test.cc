// Tests images from their files to the tokens of the answer.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "local/testing/load_engine.h"

namespace tokamak {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr char kGoldens[] = TOKAMAK_SOURCE_DIR "/tests/golden/";
constexpr int32_t kPlaceholder = 126;

std::string Picture(const std::string& name) {
  return ReadWholeFile(kGoldens + ("images/" + name), 1 << 20).value();
}

EngineOptions Options(const std::string& model) {
  return {.model = kGoldens + ("hf/" + model),
          .device = "cpu",
          .precise = true,
          .threads = 2,
          .max_seqs = 4,
          .max_batch_tokens = 64,
          .block_size = 4,
          .num_blocks = 400};
}

Request Greedy(std::vector<int32_t> prompt, std::vector<ImageData> images) {
  Request request{.token_ids = std::move(prompt), .images = std::move(images)};
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 16;
  return request;
}

OutputChunk Answer(Engine& engine, const Request& request) {
  Result<OutputStream> stream = engine.Stream(request);
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  return stream.ok() ? std::move(stream->Collect()[0]) : OutputChunk();
}

// Conversations with transformers, turn by turn.
Json Conversations(const std::string& file = "pictures.json") {
  return Json::parse(std::ifstream(kGoldens + file))["conversations"];
}

// Adds what the user says.
void Say(const Json& turn, std::vector<int32_t>& prompt, std::vector<ImageData>& images) {
  for (const Json& part : turn["parts"]) {
    if (part.is_string()) {
      prompt.push_back(kPlaceholder);
      images.push_back({.bytes = Picture(part)});
    } else {
      const std::vector<int32_t> tokens = part;
      prompt.insert(prompt.end(), tokens.begin(), tokens.end());
    }
  }
}

// Compares the answers in a conversation.
void ExpectAnswers(Engine& engine, const Json& conversation) {
  std::vector<int32_t> prompt;
  std::vector<ImageData> images;
  for (const Json& turn : conversation["turns"]) {
    Say(turn, prompt, images);
    const OutputChunk answer = Answer(engine, Greedy(prompt, images));
    EXPECT_EQ(answer.token_ids, turn["answer"].get<std::vector<int32_t>>());
    EXPECT_EQ(answer.usage.prompt_tokens, turn["prompt_tokens"]);
    prompt.insert(prompt.end(), answer.token_ids.begin(), answer.token_ids.end());
  }
}

// The images that the engine makes of one: MiniCPM-V's tiles are images, with a token before each.
int64_t PartsOf(const Engine& engine, const Json& conversation, const ImageData& image) {
  if (!conversation["model"].get<std::string>().starts_with("minicpm")) return 1;
  const std::vector<int32_t> tokens = engine.PrepareImage(image.bytes)->tokens;
  return std::count(tokens.begin(), tokens.end(), 129) +
         std::count(tokens.begin(), tokens.end(), 131);
}

TEST(Images, AnswersAreThoseOfTheReference) {
  for (const Json& conversation : Conversations()) {
    SCOPED_TRACE(conversation.dump());
    const auto engine = Load(Options(conversation["model"]));
    ASSERT_NE(engine, nullptr);
    std::vector<int32_t> prompt;
    std::vector<ImageData> images;
    for (const Json& turn : conversation["turns"]) {
      const int64_t encoded_before = engine->stats().images_encoded;
      const size_t images_before = images.size();
      Say(turn, prompt, images);
      const OutputChunk answer = Answer(*engine, Greedy(prompt, images));
      EXPECT_EQ(answer.token_ids, turn["answer"].get<std::vector<int32_t>>());
      EXPECT_EQ(answer.usage.prompt_tokens, turn["prompt_tokens"]);
      // Models with states have no prefix cache.
      const Json& model = conversation["model"];
      const bool states = model == "minicpm_v_35" || model == "qwen35_vl_odd";
      EXPECT_EQ(answer.usage.cached_tokens > 0, images_before > 0 && !states);
      // Earlier images are in the prefix cache, or else in the encoder cache.
      int64_t new_parts = 0;
      for (size_t i = images_before; i < images.size(); ++i) {
        new_parts += PartsOf(*engine, conversation, images[i]);
      }
      EXPECT_EQ(engine->stats().images_encoded - encoded_before, new_parts);
      prompt.insert(prompt.end(), answer.token_ids.begin(), answer.token_ids.end());
    }
  }
}

// Like Options, for tests/golden/mmproj.
EngineOptions MmprojOptions(const std::string& model) {
  EngineOptions options = Options("");
  options.model = kGoldens + fmt::format("mmproj/{0}/{0}.gguf", model);
  return options;
}

TEST(Mmproj, AnswersAreThoseOfTheReference) {
  Json conversations = Conversations("mmproj/pictures.json");
  for (const Json& conversation : Conversations()) {
    const Json& model = conversation["model"];
    if (model == "qwen2_5_vl_odd" || model == "qwen3_vl_odd") conversations.push_back(conversation);
  }
  EXPECT_GT(conversations.size(), 1u);
  for (const Json& conversation : conversations) {
    SCOPED_TRACE(conversation.dump());
    EngineOptions options = MmprojOptions(conversation["model"]);
    // GGUF has no field for these limits, which the directory has.
    if (conversation["model"] != "llava_odd") options.image_options = {72, 900};
    const auto engine = Load(options);
    ASSERT_TRUE(engine != nullptr && engine->model().images);
    ExpectAnswers(*engine, conversation);
  }
}

TEST(Mmproj, MayBeLeftOut) {
  EngineOptions options = MmprojOptions("qwen2_5_vl_odd");
  const auto with = Load(options);
  options.mmproj = "none";
  const auto without = Load(options);
  ASSERT_TRUE(with != nullptr && without != nullptr);
  EXPECT_TRUE(with->model().images);
  EXPECT_FALSE(without->model().images);
  EXPECT_NE(with->system_fingerprint(), without->system_fingerprint());
  EXPECT_LT(without->model().weight_bytes, with->model().weight_bytes);
  // For texts, positions in three dimensions are positions in one.
  const Request request = Greedy({5, 6, 7, 8}, {});
  EXPECT_EQ(Answer(*with, request).token_ids, Answer(*without, request).token_ids);
}

// The encoder cache holds one image, and steps are shorter than one.
TEST(Images, NothingDependsOnTheSizesOfStepsAndOfTheEncoderCache) {
  for (const Json& conversation : Conversations()) {
    SCOPED_TRACE(conversation.dump());
    EngineOptions options = Options(conversation["model"]);
    // A step of Gemma 3 has room for two images.
    const bool whole = conversation["model"].get<std::string>().starts_with("gemma3");
    options.max_batch_tokens = whole ? 18 : 7;
    options.image_cache_tokens = 1;
    options.prefix_cache = false;
    const auto engine = Load(options);
    ASSERT_NE(engine, nullptr);
    ExpectAnswers(*engine, conversation);
  }
}

TEST(Images, AreSharedOnlyWithTheSameSalt) {
  const auto engine = Load(Options("llava_odd"));
  ASSERT_NE(engine, nullptr);
  Request request =
      Greedy({5, kPlaceholder, 6}, {engine->PrepareImage(Picture("rgb.png")).value()});
  request.sampling.max_tokens = 4;  // the last token may come before the statistics of its step
  const auto encoded = [&](const std::string& salt, int32_t first_token) {
    const int64_t before = engine->stats().images_encoded;
    request.cache_salt = salt;
    request.token_ids[0] = first_token;  // finds nothing in the prefix cache
    Answer(*engine, request);
    return engine->stats().images_encoded - before;
  };
  EXPECT_EQ(encoded("", 5), 1);
  EXPECT_EQ(encoded("", 6), 0);
  EXPECT_EQ(encoded("a", 7), 1);
  EXPECT_EQ(encoded("a", 8), 0);
  EXPECT_EQ(encoded("b", 9), 1);
}

TEST(Images, WhatTheModelTakesIsSaid) {
  EngineOptions options = Options("llava_odd");
  options.max_images = 2;
  auto engine = Load(options);
  ASSERT_TRUE(engine != nullptr && engine->model().images);
  EXPECT_EQ(engine->model().images->placeholder_id, kPlaceholder);
  EXPECT_EQ(engine->model().images->max_images, 2);
  EXPECT_EQ(engine->model().images->max_tokens, 16);
  const std::vector<ImageData> three(3, {.bytes = Picture("rgb.png")});
  EXPECT_THAT(engine->Stream(Greedy({1, kPlaceholder, kPlaceholder, kPlaceholder}, three))
                  .status()
                  .ToString(),
              HasSubstr("images: a prompt may have 2, got 3"));
  options.max_images = 0;
  engine = Load(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->model().images);
  const Status refused = engine->Stream(Greedy({1, kPlaceholder}, {three[0]})).status();
  EXPECT_THAT(refused.ToString(), HasSubstr("images: this model takes only text, got 1 images"));
  EXPECT_EQ(engine->PrepareImage(three[0].bytes).status().code(), StatusCode::kInvalidArgument);
}

// Both pictures have 23 x 17 pixels. 127 ends a line of rows, 128 the image.
TEST(Images, LinesEndWithTokensOfTheTokenizer) {
  const auto engine = Load(Options("pixtral_odd"));
  ASSERT_TRUE(engine != nullptr && engine->model().images);
  EXPECT_EQ(engine->model().images->placeholder, "[IMG]");
  EXPECT_EQ(engine->model().images->max_tokens, 6 * 7);  // of 30 x 30 pixels
  const ImageData picture = engine->PrepareImage(Picture("rgb.png")).value();
  std::vector<int32_t> tokens;
  for (int line = 0; line < 4; ++line) {
    tokens.insert(tokens.end(), 5, kPlaceholder);
    tokens.push_back(line < 3 ? 127 : 128);
  }
  EXPECT_EQ(picture.tokens, tokens);
  const auto cached = [&](const char* name) {
    const Usage usage =
        Answer(*engine, Greedy({5, 6, 7, kPlaceholder, 8}, {{.bytes = Picture(name)}})).usage;
    EXPECT_EQ(usage.prompt_tokens, 4 + 24);
    return usage.cached_tokens;
  };
  EXPECT_EQ(cached("rgb.png"), 0);
  EXPECT_EQ(cached("gray.jpg"), 3);
  EXPECT_EQ(cached("rgb.png"), 27);
}

// 127 and 128 surround the number of an image, 129 and 130 its rows, 131 and 132 those of a tile;
// 133 is the line break.
TEST(Images, TilesAndNumbersAreThoseOfTheReference) {
  const auto engine = Load(Options("minicpm_v_4x"));
  ASSERT_TRUE(engine != nullptr && engine->model().images);
  EXPECT_EQ(engine->model().images->placeholder, "<|image_pad|>");
  // The image and 5 tiles of 18 rows, 4 breaks between lines of tiles, and a number of 2 digits.
  EXPECT_EQ(engine->model().images->max_tokens, 6 * (18 + 2) + 4 + 4);
  constexpr int32_t kRow = kPlaceholder;
  const ImageData picture = engine->PrepareImage(Picture("lossy.webp")).value();
  EXPECT_EQ(picture.tokens, (std::vector<int32_t>{129, kRow, kRow, 130,       //
                                                  131, kRow, kRow, 132,       //
                                                  131, kRow, kRow, 132, 133,  //
                                                  131, kRow, kRow, 132,       //
                                                  131, kRow, kRow, 132}));
  const std::vector<ImageData> both = {picture, {.bytes = Picture("rgb.png")}};
  const std::vector<int32_t> ids = {36, 127, 18, 128, kRow, 127, 19, 128, kRow, 37};
  const OutputChunk expected = Answer(*engine, Greedy(ids, both));
  Request request = Greedy({}, both);
  request.prompt = "B<|image_pad|><|image_pad|>C";
  request.parse_special_tokens = true;
  const OutputChunk answer = Answer(*engine, request);
  EXPECT_EQ(answer.usage.prompt_tokens, expected.usage.prompt_tokens);
  EXPECT_EQ(answer.token_ids, expected.token_ids);
}

TEST(Images, TheEnginesOptionsAreThoseOfImagesWithout) {
  EngineOptions options = Options("qwen2_vl_odd");
  options.image_options = {.max_pixels = 300};
  const auto engine = Load(options);
  ASSERT_NE(engine, nullptr);
  const ImageInfo info = engine->model().images.value();
  EXPECT_EQ(info.options.min_pixels, 72);
  EXPECT_EQ(info.options.max_pixels, 300);
  EXPECT_EQ(info.max_scaled_pixels, 900);
  EXPECT_EQ(info.max_tokens, 900 / 9 / 4);
  const std::string picture = Picture("lossy.webp");
  const auto tokens = [&](const ImageOptions& given) {
    return engine->PrepareImage(picture, given)->tokens.size();
  };
  EXPECT_LE(tokens({}), 300 / 9 / 4);
  EXPECT_EQ(tokens({}), tokens({.max_pixels = 300}));
  EXPECT_GT(tokens({.max_pixels = 900}), tokens({}));
}

TEST(Images, OptionsThatTheModelDoesNotTakeAreErrorsOfLoading) {
  const auto error = [](const std::string& model, int32_t max_images) {
    EngineOptions options = Options(model);
    options.image_options = {.max_pixels = 901};
    options.max_images = max_images;
    return Engine::Load(options).status().ToString();
  };
  EXPECT_THAT(error("qwen2_vl_odd", 1),
              HasSubstr("image_options.max_pixels: must be from 1 to 900"));
  const std::string other = "image_options.max_pixels: this model does not scale images";
  EXPECT_THAT(error("qwen2_vl_odd", 0), HasSubstr(other));
  EXPECT_THAT(error("llava_odd", 1), HasSubstr(other));
  EXPECT_THAT(error("qwen2_odd", 1), HasSubstr(other));
}

// A copy of a golden's directory.
class ImageDirectory : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(path_); }
  void TearDown() override { std::filesystem::remove_all(path_); }

  // The model, without its processor.
  EngineOptions Link(const std::string& model) {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::create_symlink(kGoldens + fmt::format("hf/{}/{}", model, name),
                                      path_ + "/" + name);
    }
    EngineOptions options = Options("");
    options.model = path_;
    return options;
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / fmt::format("tokamak_images_test_{}", ::getpid());
};

TEST_F(ImageDirectory, WithoutAProcessorTheModelTakesOnlyText) {
  const auto engine = Load(Link("llava_odd"));
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->model().images);
  EXPECT_EQ(Answer(*engine, Greedy({1, 2, 3}, {})).token_ids.size(), 16u);
}

// Gemma 3's images stand between marks and empty lines, which join the lines of the text.
TEST_F(ImageDirectory, MarksOfImagesAreWrittenOutBeforeTheTextBecomesTokens) {
  std::ofstream(path_ + "/tokenizer.json") << R"({"added_tokens": [
      {"id": 126, "content": "<image_soft_token>", "special": true, "normalized": false},
      {"id": 127, "content": "<start_of_image>", "special": true, "normalized": false},
      {"id": 128, "content": "<end_of_image>", "special": true, "normalized": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": false},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": false},
    "model": {"type": "BPE", "vocab": {"a": 3, "b": 4, "\u010a": 5, "\u010a\u010a": 6,
      "\u010a\u010a\u010a": 7}, "merges": ["\u010a \u010a", "\u010a\u010a \u010a"]}})";
  std::filesystem::create_symlink(
      kGoldens + std::string("hf/gemma3_vision_odd/preprocessor_config.json"),
      path_ + "/preprocessor_config.json");
  const auto engine = Load(Link("gemma3_vision_odd"));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->model().images->placeholder, "<start_of_image>");
  const std::vector<ImageData> images = {{.bytes = Picture("rgb.png")}};
  const Request expected = Greedy({3, 7, 127, kPlaceholder, 128, 6, 4}, images);
  Request request = expected;
  request.token_ids.clear();
  request.prompt = "a\n<start_of_image>b";
  request.parse_special_tokens = true;
  const OutputChunk answer = Answer(*engine, request);
  EXPECT_EQ(answer.usage.prompt_tokens, 15);
  EXPECT_EQ(answer.token_ids, Answer(*engine, expected).token_ids);
  request.prompt = "a<start_of_image><image_soft_token>";
  EXPECT_EQ(engine->Stream(request).status().message(),
            "images: the prompt has 1 images and 2 placeholders for them (\"<start_of_image>\"; a "
            "text that spells it counts too)");
}

TEST(Images, AStepHasRoomForTwoWholeImages) {
  EngineOptions options = Options("gemma3_vision_odd");
  options.max_batch_tokens = 17;
  EXPECT_THAT(Engine::Load(options).status().ToString(),
              HasSubstr("max_batch_tokens: is 17, but a step computes the 9 tokens of an image "
                        "together and needs room for twice as many, 18; or set max_images to 0"));
  options.max_images = 0;
  const auto engine = Load(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(Answer(*engine, Greedy({1, 2, 3}, {})).token_ids.size(), 16u);
}

TEST_F(ImageDirectory, AProcessorThatDoesNotFitIsAnErrorOfLoading) {
  std::ofstream(path_ + "/preprocessor_config.json")
      << R"({"image_processor_type": "CLIPImageProcessor", "size": 24, "crop_size": 24})";
  const Status status = Engine::Load(Link("llava_odd")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr(path_));
  EXPECT_THAT(status.ToString(), HasSubstr("[1, 3, 24, 24], but the model takes [1, 3, 22, 22]"));
}

TEST_F(ImageDirectory, APatchSizeOfAnotherModelIsAnErrorOfLoading) {
  std::ofstream(path_ + "/processor_config.json")
      << R"({"image_processor": {"image_processor_type": "PixtralImageProcessor"},
             "patch_size": 4})";
  const Status status = Engine::Load(Link("pixtral_odd")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("not those of 5 x 5 pixels that the model takes"));
}

TEST_F(ImageDirectory, RowsOfOtherPatchesAndLackingMarksAreErrorsOfLoading) {
  const auto error = [this](const std::string& mode) {
    std::ofstream(path_ + "/preprocessor_config.json")
        << R"({"image_processor_type": "MiniCPMV4_6ImageProcessor", "patch_size": 5,
               "scale_resolution": 30, "downsample_mode": ")" +
               mode + "\"}";
    EngineOptions options = Options("");
    options.model = path_;
    return Engine::Load(options).status().ToString();
  };
  Link("minicpm_v_odd");
  EXPECT_THAT(error("4x"), HasSubstr("prepared for rows of 4 patches, but the model makes rows of "
                                     "16: downsample_mode of preprocessor_config.json"));
  EXPECT_THAT(error("16x"), HasSubstr("the tokenizer lacks \"<image>\", which surrounds images"));
}

TEST_F(ImageDirectory, TokensThatTheTokenizerLacksAreAnErrorOfLoading) {
  const auto error = [this](const std::string& more) {
    std::ofstream(path_ + "/processor_config.json")
        << R"({"image_processor": {"image_processor_type": "PixtralImageProcessor"},
               "patch_size": 5)" +
               more + "}";
    EngineOptions options = Options("");
    options.model = path_;
    return Engine::Load(options).status().ToString();
  };
  Link("pixtral_odd");
  EXPECT_THAT(error(""), HasSubstr("processor_config.json: the tokenizer lacks \"[IMG]\""));
  std::filesystem::create_symlink(kGoldens + std::string("hf/pixtral_odd/tokenizer.json"),
                                  path_ + "/tokenizer.json");
  EXPECT_THAT(error(R"(, "image_break_token": "<|break|>")"), HasSubstr("lacks \"<|break|>\""));
  EXPECT_THAT(error(R"(, "image_token": "[IMG_END]")"),
              HasSubstr("image_token: \"[IMG_END]\" is token 128, but the model's is 126"));
  EXPECT_THAT(error(""), testing::Not(HasSubstr("lacks")));
}

TEST_F(ImageDirectory, AGridThatTheModelDoesNotAllowIsAnErrorOfLoading) {
  std::ofstream(path_ + "/preprocessor_config.json")
      << R"({"image_processor_type": "LlavaNextImageProcessor", "size": 20, "crop_size": 20,
             "image_grid_pinpoints": [[20, 40], [20, 60]]})";
  const Status status = Engine::Load(Link("llava_next_odd")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("cut into 1 x 3 tiles, which image_grid_pinpoints"));
}

}  // namespace
}  // namespace tokamak
