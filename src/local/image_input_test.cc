#include "local/image_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json/json_value.h"
#include "images/decode.h"
#include "images/placeholders.h"

namespace tokamak {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

constexpr int32_t kPlaceholder = 90, kRow = 91, kBreak = 92;

std::string File(const std::string& name) {
  return ReadWholeFile(TOKAMAK_SOURCE_DIR "/tests/golden/images/" + name, 1 << 20).value();
}
const std::string kOne = File("gray.jpg"), kOther = File("lossy.webp");

const JsonValue kConfig = *JsonValue::Parse(
    R"({"image_processor_type": "SiglipImageProcessor", "size": {"height": 4, "width": 4}})", {});

ImageInput MakeInput(int64_t max_held_bytes = 1 << 20) {
  return ImageInput({.info = {.placeholder = "<image>",
                              .placeholder_id = kPlaceholder,
                              .max_images = 3,
                              .max_bytes = 1 << 16,
                              .max_pixels = 1 << 20},
                     .processor = ReadImageProcessor(kConfig, "config").value(),
                     .row_token = kRow,
                     .tokens = [](const PreparedImage& image) -> Result<ImageTokens> {
                       if (image.image_width < 30) return ImageTokens{{kRow, kRow}, 2};
                       return ImageTokens{{kBreak, kRow, kRow, kBreak, kBreak, kRow}};
                     },
                     .rows = [](const PreparedImage& image) -> Result<int32_t> {
                       return image.image_width < 30 ? 2 : 3;
                     },
                     .max_held_bytes = max_held_bytes});
}

TEST(ImageInput, PutsTheTokensOfImagesWhereTheirPlaceholdersAre) {
  const ImageInput input = MakeInput();
  const ImageData one = input.Prepare(kOne).value(), other = input.Prepare(kOther).value();
  EXPECT_THAT(one.tokens, ElementsAre(kRow, kRow));
  EXPECT_THAT(other.tokens, ElementsAre(kBreak, kRow, kRow, kBreak, kBreak, kRow));
  std::vector<int32_t> prompt = {1, kPlaceholder, 2, kPlaceholder, kPlaceholder};
  const auto placed = input.Place({one, other, {.bytes = kOne}}, "", prompt);
  ASSERT_TRUE(placed.ok()) << placed.status().ToString();
  EXPECT_THAT(prompt,
              ElementsAre(1, kRow, kRow, 2, kBreak, kRow, kRow, kBreak, kBreak, kRow, kRow, kRow));
  const ImageId one_id = one.prepared->parts[0].image->id,
                other_id = other.prepared->parts[0].image->id;
  const auto span = [](int32_t position, ImageId image, int32_t first_row, int32_t num_rows,
                       int32_t grid_width) {
    return Field(&ArrivalImage::span, ImageSpan{position, image, first_row, num_rows, grid_width});
  };
  EXPECT_THAT(*placed, ElementsAre(span(1, one_id, 0, 2, 2), span(5, other_id, 0, 2, 0),
                                   span(9, other_id, 2, 1, 0), span(10, one_id, 0, 2, 2)));
  EXPECT_EQ((*placed)[0].image, one.prepared->parts[0].image);
  EXPECT_EQ((*placed)[1].image, other.prepared->parts[0].image);
  EXPECT_EQ((*placed)[2].image, other.prepared->parts[0].image);
  EXPECT_EQ(*(*placed)[3].image, *one.prepared->parts[0].image);
  EXPECT_EQ(other.prepared->parts[0].image->num_rows, 3);
}

TEST(ImageInput, TextsHaveMoreThanAPlaceholderIfTheModelSaysSo) {
  ImageInfo info{.placeholder = "<image>"};
  const std::string text = "a<image>b <image><imag><image>";
  EXPECT_EQ(WriteOutPlaceholders(info, text), text);
  info.placeholder_text = "\n<image>*</image>";
  EXPECT_EQ(WriteOutPlaceholders(info, text),
            "a\n<image>*</image>b \n<image>*</image><imag>\n<image>*</image>");
  EXPECT_EQ(WriteOutPlaceholders(info, "none"), "none");
  info.number_begin = "<id>";
  info.placeholder_text = "</id><image>";
  EXPECT_EQ(WriteOutPlaceholders(info, text),
            "a<id>0</id><image>b <id>1</id><image><imag><id>2</id><image>");
}

TEST(ImageInput, TheEngineGetsWhatTheProcessorMade) {
  const Image decoded = DecodeImage(kOther, {}).value();
  const PreparedImage expected =
      ReadImageProcessor(kConfig, "config").value()->Prepare(decoded).value();
  const std::shared_ptr<const EncodeImage> image =
      MakeInput().Prepare(kOther)->prepared->parts[0].image;
  EXPECT_EQ(image->shape, expected.shape);
  EXPECT_EQ(image->values, expected.values);
  EXPECT_EQ(image->image_height, decoded.height);
  EXPECT_EQ(image->image_width, decoded.width);
}

// Like MakeInput, but for images that keep about their size.
ImageInput MakeScalingInput() {
  const JsonValue config = *JsonValue::Parse(
      R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 2, "min_pixels": 16,
          "max_pixels": 400})",
      {});
  return ImageInput(
      {.info = {.placeholder = "<image>",
                .placeholder_id = kPlaceholder,
                .max_images = 3,
                .max_bytes = 1 << 16,
                .max_pixels = 1 << 20,
                .options = {.min_pixels = 16, .max_pixels = 200},
                .max_scaled_pixels = 400},
       .processor = ReadImageProcessor(config, "config").value(),
       .row_token = kRow,
       .tokens = [](const PreparedImage& image) -> Result<ImageTokens> {
         return ImageTokens{std::vector<int32_t>(static_cast<size_t>(image.shape[0]) / 4, kRow)};
       },
       .rows = [](const PreparedImage& image) -> Result<int32_t> { return image.shape[0] / 4; }});
}

TEST(ImageInput, OptionsChangeTheSizeOfAnImage) {
  const ImageInput input = MakeScalingInput();
  const auto pixels = [&](const ImageOptions& options) {
    const std::shared_ptr<const EncodeImage> image =
        input.Prepare(kOther, options)->prepared->parts[0].image;
    std::vector<int32_t> prompt = {kPlaceholder, kPlaceholder};
    const std::vector<ImageData> both = {{.bytes = kOther, .options = options},
                                         input.Prepare(kOther, options).value()};
    const auto placed = input.Place(both, "", prompt).value();
    EXPECT_EQ(*placed[0].image, *image);
    EXPECT_EQ(*placed[1].image, *image);
    return image->shape[0] * 4;
  };
  const int32_t by_default = pixels({});
  EXPECT_GT(by_default, 100);
  EXPECT_LE(by_default, 200);
  EXPECT_GT(pixels({.max_pixels = 400}), 200);
  EXPECT_LE(pixels({.max_pixels = 50}), 50);
  const std::string small = File("interlaced_3x2.png");
  EXPECT_GE(input.Prepare(small, {.min_pixels = 300, .max_pixels = 400})
                ->prepared->parts[0]
                .image->shape[0],
            300 / 4);
  EXPECT_NE(input.Prepare(kOther)->prepared->parts[0].image->id,
            input.Prepare(kOther, {.max_pixels = 50})->prepared->parts[0].image->id);
}

TEST(ImageInput, OptionsThatTheModelDoesNotTakeAreErrors) {
  const auto refusal = [](const ImageInput& input, const ImageOptions& options) {
    std::vector<int32_t> prompt = {kPlaceholder};
    const Status status = input.Prepare(kOne, options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(input.Place({{.bytes = kOne, .options = options}}, "", prompt).status().ToString(),
              status.WithContext("images[0]").ToString());
    return status.ToString();
  };
  EXPECT_THAT(refusal(MakeScalingInput(), {.max_pixels = 401}),
              HasSubstr("options.max_pixels: must be from 1 to 400 for this model, got 401"));
  EXPECT_THAT(refusal(MakeInput(), {.min_pixels = 20}),
              HasSubstr("options.min_pixels: this model does not scale images to a number"));
}

TEST(ImageInput, ImagesHaveTheSameIdIfContentAndSaltAreEqual) {
  const ImageInput input = MakeInput();
  const auto id = [&](const std::string& bytes, const std::string& salt) {
    std::vector<int32_t> prompt = {kPlaceholder, kPlaceholder};
    const auto placed =
        input.Place({{.bytes = bytes}, input.Prepare(bytes).value()}, salt, prompt).value();
    EXPECT_EQ(*placed[0].image, *placed[1].image);
    EXPECT_EQ(placed[0].image->id, placed[0].span.image);
    return placed[0].span.image;
  };
  EXPECT_NE(id(kOne, ""), 0u);
  EXPECT_EQ(id(kOne, ""), id(kOne, ""));
  EXPECT_EQ(id(kOne, "a"), id(kOne, "a"));
  EXPECT_NE(id(kOne, ""), id(kOther, ""));
  EXPECT_NE(id(kOne, ""), id(kOne, "a"));
  EXPECT_NE(id(kOne, "a"), id(kOne, "b"));
}

TEST(ImageInput, IdsCannotBePredicted) {
  EXPECT_NE(MakeInput().Prepare(kOne)->prepared->parts[0].image->id,
            MakeInput().Prepare(kOne)->prepared->parts[0].image->id);
}

TEST(ImageInput, WrongCountsAreRefusedWithNumbers) {
  const ImageInput input = MakeInput();
  const auto refusal = [&](size_t images, std::vector<int32_t> prompt) {
    const std::vector<int32_t> before = prompt;
    const auto placed = input.Place(std::vector<ImageData>(images, {.bytes = kOne}), "", prompt);
    EXPECT_EQ(placed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(prompt, before);
    return placed.status().ToString();
  };
  EXPECT_THAT(
      refusal(1, {1, 2}),
      HasSubstr("images: the prompt has 1 images and 0 placeholders for them (\"<image>\""));
  EXPECT_THAT(refusal(1, {kPlaceholder, kPlaceholder}),
              HasSubstr("has 1 images and 2 placeholders"));
  EXPECT_THAT(refusal(4, std::vector<int32_t>(4, kPlaceholder)),
              HasSubstr("images: a prompt may have 3, got 4"));
}

TEST(ImageInput, ErrorsNameTheImage) {
  const ImageInput input = MakeInput();
  std::vector<int32_t> prompt = {kPlaceholder, kPlaceholder};
  const auto placed = input.Place({{.bytes = kOne}, {.bytes = "x"}}, "", prompt);
  EXPECT_THAT(placed.status().ToString(),
              HasSubstr("images[1]: the image is not a JPEG, PNG, WebP or GIF"));
  EXPECT_EQ(input.Prepare(std::string(1 << 17, 'x')).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(ImageInput, HeldImagesTakeBoundedMemory) {
  const int64_t each = 3 * 4 * 4 * sizeof(float);
  const ImageInput input = MakeInput(2 * each + 1);
  ImageData first = input.Prepare(kOne).value();
  const ImageData second = input.Prepare(kOne).value();
  const Status refused = input.Prepare(kOne).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.ToString(), HasSubstr("take 0.4 KB, of at most 0.4 KB"));
  std::vector<int32_t> prompt = {kPlaceholder};
  EXPECT_EQ(input.Place({second}, "salt", prompt).status().code(), StatusCode::kUnavailable);
  first = {};
  EXPECT_TRUE(input.Prepare(kOne).ok());
  EXPECT_TRUE(MakeInput(1).Prepare(kOne).ok());  // one may always exist
}

}  // namespace
}  // namespace tokamak
