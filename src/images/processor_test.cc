// The values come from transformers (tests/golden/make_image_processor_goldens.py).
#include "images/processor.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json/json_reader.h"
#include "base/json/json_value.h"
#include "images/image_options.h"
#include "images/testing/ppm.h"

namespace tokamak {
namespace {

const std::string kGolden = TOKAMAK_SOURCE_DIR "/tests/golden/";

std::string ReadFile(const std::string& name) {
  return ReadWholeFile(kGolden + name, 1 << 24).value();
}

JsonValue Json(const std::string& text) { return JsonValue::Parse(text, {}).value(); }

// `value` must outlive the result.
JsonReader Fields(const JsonValue& value) {
  const auto describe = [](const JsonMismatch& mismatch) {
    return fmt::format("must be {}", mismatch.expected);
  };
  return JsonReader(value, "", describe, JsonReader::Track::kNone);
}

std::unique_ptr<const ImageProcessor> Read(const std::string& config) {
  return ReadImageProcessor(Json(config), "config").value();
}

Image Blank(int64_t height, int64_t width) {
  Image image{static_cast<int32_t>(width), static_cast<int32_t>(height)};
  image.rgb.resize(3 * height * width);
  return image;
}

std::vector<int32_t> Ints(const JsonValue& array) {
  std::vector<int32_t> ints;
  for (const JsonValue& value : *array.AsArray())
    ints.push_back(static_cast<int32_t>(*value.AsInt()));
  return ints;
}

void ExpectValues(const std::string& cases_file, const std::string& values_file) {
  const JsonValue cases = Json(ReadFile("image_processors/" + cases_file));
  const std::string bytes = ReadFile("image_processors/" + values_file);
  size_t at = 0;
  for (const JsonValue& golden : *cases.AsArray()) {
    const JsonValue* const outer = golden.Find("outer");
    const auto processor = ReadImageProcessor(*golden.Find("config"), "config", kAnyPatches,
                                              outer != nullptr ? *outer : JsonValue());
    ASSERT_TRUE(processor.ok()) << processor.status().ToString();
    const JsonValue* kwargs = golden.Find("kwargs");
    const ImageOptions options = kwargs ? ReadImageOptions(Fields(*kwargs)) : ImageOptions();
    for (const JsonValue& image : *golden.Find("images")->AsArray()) {
      const std::string name = *image.Find("file")->AsString();
      SCOPED_TRACE(golden.ToString(1000) + " " + name);
      const Image decoded = ReadPpm(kGolden + "resized/" + name + ".ppm");
      const Result<PreparedImage> prepared = (*processor)->PrepareWith(options, decoded);
      ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
      ASSERT_EQ(prepared->shape, Ints(*image.Find("shape")));
      EXPECT_EQ((std::vector{prepared->grid_height, prepared->grid_width}),
                Ints(*image.Find("grid")));
      EXPECT_EQ(prepared->image_height, decoded.height);
      EXPECT_EQ(prepared->image_width, decoded.width);
      ASSERT_LE(at + (prepared->values.size() * sizeof(float)), bytes.size());
      size_t different = 0;
      for (const float value : prepared->values) {
        float expected;
        std::memcpy(&expected, &bytes[at], sizeof(expected));
        at += sizeof(expected);
        different += std::abs(value - expected) > 1e-5;
      }
      EXPECT_EQ(different, 0u) << "of " << prepared->values.size();
    }
  }
  EXPECT_EQ(at, bytes.size());
}

TEST(ImageProcessor, GivesTheValuesOfTransformers) { ExpectValues("cases.json", "values.bin"); }

TEST(ImageProcessor, GivesTheValuesOfTransformersWithArguments) {
  ExpectValues("kwargs.json", "kwargs.bin");
}

// An image as MiniCPM-V's processor prepares it.
struct InTiles {
  std::vector<int32_t> grid, tiles, tile;  // of patches, of tiles, and of a tile's patches
  std::vector<float> values = {};
};
InTiles TilesOf(const PreparedImage& prepared) {
  const auto count = static_cast<int32_t>(prepared.tiles.size());
  InTiles result{{prepared.grid_height, prepared.grid_width}, {0, 0}, {0, 0}, prepared.values};
  if (count == 0) return result;
  result.tiles = {count / prepared.tile_columns, prepared.tile_columns};
  result.tile = {prepared.tiles[0].grid_height, prepared.tiles[0].grid_width};
  for (const PreparedImage& tile : prepared.tiles) {
    EXPECT_EQ((std::vector{tile.grid_height, tile.grid_width}), result.tile);
    EXPECT_TRUE(tile.tiles.empty());
    EXPECT_EQ(tile.shape[0], tile.grid_height * tile.grid_width);
    result.values.insert(result.values.end(), tile.values.begin(), tile.values.end());
  }
  return result;
}

TEST(MiniCpmVProcessor, GivesTheTilesOfTransformers) {
  const JsonValue goldens = Json(ReadFile("image_processors/tiles.json"));
  const std::string bytes = ReadFile("image_processors/tiles.bin");
  size_t at = 0;
  std::vector<std::unique_ptr<const ImageProcessor>> processors;
  for (const JsonValue& golden : *goldens.Find("cases")->AsArray()) {
    processors.push_back(Read(golden.Find("config")->ToString(1000)));
    for (const JsonValue& image : *golden.Find("images")->AsArray()) {
      const std::string name = *image.Find("file")->AsString();
      SCOPED_TRACE(golden.ToString(1000) + " " + name);
      const Image decoded = ReadPpm(kGolden + "resized/" + name + ".ppm");
      const PreparedImage prepared = processors.back()->Prepare(decoded).value();
      EXPECT_EQ(prepared.image_height, decoded.height);
      EXPECT_EQ(prepared.image_width, decoded.width);
      const InTiles got = TilesOf(prepared);
      EXPECT_EQ(got.grid, Ints(*image.Find("grid")));
      EXPECT_EQ(got.tiles, Ints(*image.Find("tiles")));
      EXPECT_EQ(got.tile, Ints(*image.Find("tile")));
      const size_t size = got.values.size() * sizeof(float);
      ASSERT_LE(at + size, bytes.size());
      std::vector<float> expected(got.values.size());
      std::memcpy(expected.data(), &bytes[at], size);
      at += size;
      EXPECT_THAT(got.values, testing::Pointwise(testing::FloatNear(1e-5F), expected));
    }
  }
  EXPECT_EQ(at, bytes.size());
  for (const JsonValue& line : *goldens.Find("sizes")->AsArray()) {
    const std::vector<int32_t> n = Ints(line);
    const InTiles got =
        TilesOf(processors[static_cast<size_t>(n[0])]->Prepare(Blank(n[1], n[2])).value());
    EXPECT_EQ((std::vector{got.grid, got.tiles, got.tile}),
              (std::vector<std::vector<int32_t>>{{n[3], n[4]}, {n[5], n[6]}, {n[7], n[8]}}))
        << line.ToString();
  }
}

TEST(MiniCpmVProcessor, LimitsAreKept) {
  const auto read = [](const std::string& fields, int32_t max_patches = kAnyPatches) {
    const std::string config = R"({"image_processor_type": "MiniCPMV4_6ImageProcessor")";
    return ReadImageProcessor(Json(config + fields + "}"), "config", max_patches);
  };
  const auto published = read("", 2048).value();
  EXPECT_EQ(published->max_tiles(), 9);
  EXPECT_EQ(published->tile_tokens()->number_begin, "<image_id>");
  EXPECT_EQ(read(R"(, "slice_mode": false)").value()->max_tiles(), 0);
  EXPECT_EQ(read(R"(, "max_slice_nums": 1)").value()->max_tiles(), 0);
  EXPECT_EQ(read(R"(, "use_image_id": false)").value()->tile_tokens()->number_begin, "");
  EXPECT_EQ(published->Prepare(Blank(2000, 2000))->tiles.size(), 9u);
  EXPECT_TRUE(published->Prepare(Blank(1, 250)).ok());
  EXPECT_EQ(published->Prepare(Blank(1, 300)).status().ToString(),
            "invalid argument: the image of 300 x 1 pixels is too narrow: it would be scaled to "
            "7504 x 56, which are 2144 patches of at most 2048; cut off a part of it");
  const auto error = [&](const std::string& fields) { return read(fields).status().ToString(); };
  EXPECT_THAT(error(R"(, "downsample_mode": "8x")"),
              testing::HasSubstr("config: downsample_mode is \"8x\"; \"4x\" and \"16x\""));
  EXPECT_THAT(error(R"(, "do_resize": false)"),
              testing::HasSubstr("config: do_resize is false, but these images are always"));
  EXPECT_THAT(error(R"(, "max_slice_nums": 0)"),
              testing::HasSubstr("config: max_slice_nums: expected an integer from 1 to 64, got"));
  EXPECT_THAT(error(R"(, "scale_resolution": 5000)"),
              testing::HasSubstr("config: scale_resolution: expected an integer from 1 to 4096"));
  EXPECT_THAT(error(R"(, "patch_size": {"height": 14})"),
              testing::HasSubstr("config: patch_size: expected an integer"));
  EXPECT_THAT(error(R"(, "version": 2.6)"),
              testing::HasSubstr("config: version may change the result"));
}

TEST(ImageProcessor, ChoosesTheGridsOfTransformers) {
  const auto next = Read(R"({"image_processor_type": "LlavaNextImageProcessorFast", "crop_size": 14,
                             "size": 14, "image_grid_pinpoints": [[14, 28], [28, 14], [28, 28],
                             [42, 14], [14, 42]]})");
  const auto qwen = Read(R"({"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 4,
                             "min_pixels": 600, "max_pixels": 1800})");
  const auto glm = Read(R"({"image_processor_type": "Glm4vImageProcessor", "patch_size": 4,
                            "size": {"shortest_edge": 600, "longest_edge": 1800}})");
  const auto pixtral =
      ReadImageProcessor(Json(R"({"image_processor_type": "PixtralImageProcessorFast",
                                  "size": {"longest_edge": 60}})"),
                         "config", kAnyPatches, Json(R"({"patch_size": 8})"))
          .value();
  const JsonValue sizes = Json(ReadFile("image_processors/sizes.json"));
  for (const JsonValue& grid : *sizes.Find("grids")->AsArray()) {
    const JsonValue::Array& fields = *grid.AsArray();
    const std::string& type = *fields[0].AsString();
    const auto& processor = type == "Qwen2VLImageProcessor"   ? qwen
                            : type == "Glm4vImageProcessor"   ? glm
                            : type == "PixtralImageProcessor" ? pixtral
                                                              : next;
    const auto prepared = processor->Prepare(Blank(*fields[1].AsInt(), *fields[2].AsInt()));
    ASSERT_TRUE(prepared.ok()) << grid.ToString() << prepared.status().ToString();
    EXPECT_EQ(prepared->grid_height, fields[3].AsInt()) << grid.ToString();
    EXPECT_EQ(prepared->grid_width, fields[4].AsInt()) << grid.ToString();
  }
}

// The file is the one published with Qwen3-VL.
TEST(ImageProcessor, ReadsTheLimitsOfQwen3Vl) {
  const std::string config = R"({"size": {"longest_edge": 16777216, "shortest_edge": 65536},
      "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5],
      "image_std": [0.5, 0.5, 0.5], "processor_class": "Qwen3VLProcessor",
      "image_processor_type": "Qwen2VLImageProcessorFast"})";
  const auto grid = [&](int32_t max_patches, int64_t height, int64_t width) {
    const auto processor = ReadImageProcessor(Json(config), "config", max_patches).value();
    const PreparedImage prepared = processor->Prepare(Blank(height, width)).value();
    EXPECT_EQ(prepared.shape.back(), 16);
    return std::pair(prepared.grid_height, prepared.grid_width);
  };
  EXPECT_EQ(grid(5120, 480, 640), std::pair(30, 40));
  EXPECT_EQ(grid(5120, 10, 20), std::pair(12, 24));      // at least 65,536 pixels
  EXPECT_EQ(grid(5120, 3000, 3000), std::pair(70, 70));  // at most 5,120 patches
  EXPECT_EQ(grid(9000, 1504, 1504), std::pair(94, 94));  // the file allows more
}

TEST(ImageProcessor, ErrorsNameTheField) {
  const auto error = [](const std::string& type, const std::string& fields) {
    const std::string config = R"({"image_processor_type": ")" + type + "\"" + fields + "}";
    return ReadImageProcessor(Json(config), "config").status().ToString();
  };
  const std::string clip = "CLIPImageProcessor", next = "LlavaNextImageProcessor",
                    qwen = "Qwen2VLImageProcessor", gemma = "Gemma3ImageProcessor",
                    pixtral = "PixtralImageProcessor";
  const std::pair<std::string, std::string> kCases[] = {
      {error("ViTImageProcessor", ""),
       "not supported: config: image_processor_type is \"ViTImageProcessor\"; implemented are "
       "CLIPImageProcessor, LlavaImageProcessor, SiglipImageProcessor, Gemma3ImageProcessor, "
       "LlavaNextImageProcessor, Qwen2VLImageProcessor, Glm4vImageProcessor, "
       "PixtralImageProcessor, MiniCPMV4_6ImageProcessor"},
      {error("CLIPImageProcessorPil", ""), "image_processor_type is \"CLIPImageProcessorPil\""},
      {error(clip, R"(, "resample": 1)"), "config: resample is 1; 2 (bilinear) and 3 (bicubic)"},
      {error(clip, R"(, "do_flip": false, "zoom": 2)"),
       "not supported: config: do_flip, zoom may change the result, but CLIPImageProcessor is "
       "implemented without"},
      {error(clip, R"(, "do_pad": true)"),
       "config: do_pad is true, which is implemented for Llava"},
      {error(clip, R"(, "do_convert_rgb": false)"), "config: do_convert_rgb is false"},
      {error(clip, R"(, "size": {"shortest_edge": 9, "longest_edge": 12})"),
       "config: size: \"longest_edge\" is not supported"},
      {error(clip, R"(, "size": {"height": 9})"), "config: size.width: is missing"},
      {error(clip, R"(, "size": 0)"), "config: size: expected an integer from 1 to 4096, got 0"},
      {error(clip, R"(, "image_mean": [0.5])"),
       "config: image_mean: expected an array of 3 numbers"},
      {error(clip, R"(, "image_std": [1, 1, 0])"),
       "config: image_std[2]: expected a number from 1e-06"},
      {error(clip, R"(, "rescale_factor": 0)"),
       "config: rescale_factor: expected a number from 1e-06"},
      {error(next, R"(, "image_grid_pinpoints": [])"), "expected at least one resolution, got []"},
      {error(next, R"(, "image_grid_pinpoints": [[336, 672]])"),
       "image_grid_pinpoints: has 336 x 672, which tiles of 224 pixels (crop_size) do not fill"},
      {error(qwen, R"(, "size": {"shortest_edge": 9})"), "config: size.longest_edge: is missing"},
      {error(qwen, R"(, "merge_size": 0)"), "config: merge_size: expected an integer from 1 to 16"},
      {error(qwen, R"(, "fps": 2)"), "config: fps may change the result"},
      {error("Glm4vImageProcessor", R"(, "min_pixels": 9)"), "config: min_pixels may change"},
      {error(pixtral, R"(, "size": {"shortest_edge": 9})"),
       "config: size: \"shortest_edge\" is not supported"},
      {error(pixtral, R"(, "size": {"longest_edge": 9, "height": 3})"),
       "config: size: \"height\" is not supported"},
      {error(pixtral, R"(, "size": 9)"), "config: size: expected an object, got 9"},
      {error(pixtral, R"(, "do_center_crop": true)"),
       "config: do_center_crop is true, which is not implemented for Pixtral"},
      {error(gemma, R"(, "do_pan_and_scan": true)"),
       "config: do_pan_and_scan is true, which is not implemented"},
      {error(gemma, R"(, "do_center_crop": true)"), "config: do_center_crop is true"},
  };
  for (const auto& [got, expected] : kCases) EXPECT_THAT(got, testing::HasSubstr(expected));
}

TEST(ImageOptions, AreTheProcessorsUnlessSaidOtherwise) {
  const auto options = [](const std::string& fields) {
    return Read(R"({"image_processor_type": "Qwen2VLImageProcessor")" + fields + "}")->options();
  };
  EXPECT_EQ(options("").min_pixels, 3136);
  EXPECT_EQ(options("").max_pixels, 1003520);
  EXPECT_EQ(options(R"(, "max_pixels": 500)").max_pixels, 500);
  EXPECT_TRUE(options(R"(, "do_resize": false)").empty());
  EXPECT_TRUE(Read(R"({"image_processor_type": "CLIPImageProcessor"})")->options().empty());
}

TEST(ImageOptions, ErrorsNameTheField) {
  const ImageOptions absent = {.min_pixels = 100, .max_pixels = 900};
  const auto error = [&](const std::string& text, const ImageOptions& own) {
    const JsonValue value = Json(text);
    const JsonReader fields = Fields(value);
    const ImageOptions options = ReadImageOptions(fields);
    if (!fields.ok()) return fields.status().ToString();
    return CheckImageOptions(options, own, 1000, "kwargs").ToString();
  };
  for (const char* good : {"{}", "null", R"({"max_pixels": 1000})", R"({"min_pixels": 900})",
                           R"({"min_pixels": 1, "max_pixels": 1, "fps": null})",
                           R"({"size": {"longest_edge": 100}, "min_pixels": null})",
                           R"({"size": {"longest_edge": 2000}, "max_pixels": 1000})"}) {
    EXPECT_EQ(error(good, absent), "ok") << good;
  }
  EXPECT_EQ(error("{}", {}), "ok");
  const std::pair<std::string, std::string> kCases[] = {
      {"[]", "must be an object"},
      {R"({"max_pixels": "a"})", "max_pixels: must be an integer"},
      {R"({"max_pixels": 3000000000})", "max_pixels: must be an integer"},
      {R"({"size": 4})", "size: must be an object"},
      {R"({"size": {"height": 9, "width": 9}})",
       "size.height: is not supported; shortest_edge and longest_edge are"},
      {R"({"fps": 2})", "fps: is not supported; min_pixels and max_pixels are"},
      {R"({"max_pixels": 1001})",
       "kwargs.max_pixels: must be from 1 to 1000 for this model, got 1001"},
      {R"({"max_pixels": 0})", "kwargs.max_pixels: must be from 1 to 1000 for this model, got 0"},
      {R"({"min_pixels": 0})", "kwargs.min_pixels: must be at least 1, got 0"},
      {R"({"min_pixels": 9, "max_pixels": 8})",
       "kwargs.max_pixels: min_pixels is 9 and max_pixels only 8; give both"},
      {R"({"max_pixels": 99})", "kwargs.max_pixels: min_pixels is 100 and max_pixels only 99"},
      {R"({"min_pixels": 901})", "kwargs.min_pixels: min_pixels is 901 and max_pixels only 900"},
  };
  for (const auto& [text, expected] : kCases) {
    EXPECT_THAT(error(text, absent), testing::HasSubstr(expected)) << text;
  }
  EXPECT_THAT(error(R"({"max_pixels": 500})", {}),
              testing::HasSubstr("kwargs.max_pixels: this model does not scale images"));
}

TEST(ImageProcessor, IsReadFromTheFilesThatTransformersReads) {
  const std::filesystem::path folder = testing::TempDir() + "image_processor_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  const auto side = [&] {
    const auto processor = LoadImageProcessor(folder);
    return processor.ok() ? (*processor)->Prepare(Blank(9, 9))->shape[2] : -1;
  };
  const auto config = [](const std::string& sides) {
    return R"({"image_processor_type": "SiglipImageProcessor", "size": {"height": )" + sides +
           R"(, "width": )" + sides + "}}";
  };
  EXPECT_EQ(LoadImageProcessor(folder).status().code(), StatusCode::kNotFound);
  write("preprocessor_config.json", config("6"));
  EXPECT_EQ(side(), 6);
  // Before version 5 this file had only what the processor itself takes.
  write("processor_config.json", R"({"patch_size": 14, "processor_class": "LlavaProcessor"})");
  EXPECT_EQ(side(), 6);
  write("processor_config.json", R"({"image_processor": )" + config("8") + "}");
  EXPECT_EQ(side(), 8);
  write("processor_config.json", R"({"image_processor": 3})");
  EXPECT_THAT(LoadImageProcessor(folder).status().ToString(),
              testing::HasSubstr("processor_config.json: image_processor: image_processor_type"));
  write("processor_config.json", R"({"image_processor": {"size": NaN}})");
  EXPECT_THAT(LoadImageProcessor(folder).status().ToString(),
              testing::HasSubstr("processor_config.json: is not valid JSON at byte 30"));
}

constexpr char kPixtral[] = R"({"image_processor_type": "PixtralImageProcessor")";

std::unique_ptr<const ImageProcessor> ReadPixtral(const std::string& outer,
                                                  int32_t max_patches = kAnyPatches) {
  return ReadImageProcessor(Json(kPixtral + std::string("}")), "config", max_patches, Json(outer))
      .value();
}

TEST(PixtralProcessor, TheTokensOfLinesAreThoseOfTheOuterFile) {
  const auto given = ReadPixtral(R"({"image_token": "<i>", "image_break_token": "<b>",
                                     "image_end_token": "<e>"})");
  EXPECT_EQ(given->line_tokens()->row, "<i>");
  EXPECT_EQ(given->line_tokens()->line_end, "<b>");
  EXPECT_EQ(given->line_tokens()->image_end, "<e>");
  const auto absent = ReadPixtral("{}");
  EXPECT_EQ(absent->line_tokens()->row, "[IMG]");
  EXPECT_EQ(absent->line_tokens()->line_end, "[IMG_BREAK]");
  EXPECT_EQ(absent->line_tokens()->image_end, "[IMG_END]");
}

TEST(PixtralProcessor, MakesNoMorePatchesThanTheTowerTakes) {
  const std::string outer = R"({"patch_size": 10, "spatial_merge_size": 2})";
  const auto largest = [&](int32_t max_patches) {
    const auto processor = ReadPixtral(outer, max_patches);
    const PreparedImage prepared = processor->Prepare(Blank(100, 1100)).value();
    EXPECT_EQ(processor->max_lines(), prepared.grid_width);
    EXPECT_EQ(processor->max_patches(), prepared.grid_width * prepared.grid_width * 4);
    return prepared.grid_width;
  };
  EXPECT_EQ(largest(kAnyPatches), 52);  // of 1,024 pixels
  EXPECT_EQ(largest(20 * 20), 10);
  EXPECT_EQ(largest(21 * 21), 10);
  EXPECT_EQ(largest(1), 1);
}

TEST(PixtralProcessor, ErrorsNameTheFieldOfTheOuterFile) {
  const auto error = [](const std::string& outer) {
    return ReadImageProcessor(Json(kPixtral + std::string("}")), "config", kAnyPatches, Json(outer))
        .status()
        .ToString();
  };
  EXPECT_THAT(error(R"({"patch_size": {"height": 14}})"),
              testing::HasSubstr("processor_config.json: patch_size: expected an integer"));
  EXPECT_THAT(error(R"({"spatial_merge_size": 0})"),
              testing::HasSubstr("processor_config.json: spatial_merge_size: expected an integer"));
  EXPECT_THAT(error(R"({"image_processor": {}, "processor_class": "PixtralProcessor", "zoom": 2})"),
              testing::HasSubstr("processor_config.json: zoom may change the result"));
}

TEST(PixtralProcessor, ImagesAreNotResizedIfTheFileSaysSo) {
  const auto processor =
      ReadImageProcessor(Json(kPixtral + std::string(R"(, "do_resize": false})")), "config",
                         kAnyPatches, Json(R"({"patch_size": 3})"))
          .value();
  EXPECT_EQ(processor->Prepare(Blank(9, 6))->shape, (std::vector<int32_t>{1, 3, 9, 6}));
  EXPECT_EQ(processor->Prepare(Blank(9, 7)).status().ToString(),
            "invalid argument: the image of 7 x 9 pixels is not resized (do_resize is false), and "
            "its sides are not multiples of 3");
}

TEST(ImageProcessor, ImagesThatAreTooNarrowAreRefused) {
  const std::string llava = R"({"image_processor_type": "LlavaImageProcessor", "do_pad": true})";
  EXPECT_EQ(Read(llava)->Prepare(Blank(1, 16000)).status().ToString(),
            "does not fit: the image of 16000 x 1 pixels would be padded to 16000 x 16000, and "
            "134217728 are the limit; cut off a part of its longer side");
  const std::string clip = R"({"image_processor_type": "CLIPImageProcessor"})";
  EXPECT_EQ(Read(clip)->Prepare(Blank(1, 16000)).status().ToString(),
            "does not fit: the image of 16000 x 1 pixels would be scaled to 3584000 x 224, and "
            "33554432 are the limit; cut off a part of its longer side");
  const std::string qwen = R"({"image_processor_type": "Qwen2VLImageProcessor"})";
  EXPECT_TRUE(Read(qwen)->Prepare(Blank(1, 200)).ok());
  EXPECT_EQ(Read(qwen)->Prepare(Blank(201, 1)).status().ToString(),
            "invalid argument: the image of 1 x 201 pixels is too narrow: the longer side may have "
            "200 times the shorter one; cut off a part of it");
  EXPECT_TRUE(ReadPixtral("{}")->Prepare(Blank(1, 1024)).ok());
  EXPECT_EQ(ReadPixtral("{}")->Prepare(Blank(1025, 1)).status().ToString(),
            "invalid argument: the image of 1 x 1025 pixels is too narrow: scaled to 1024 x 1024 "
            "it has no pixels; cut off a part of it");
}

}  // namespace
}  // namespace tokamak
