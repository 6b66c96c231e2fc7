// Errors of MiniCPM-V's configuration, and of images that do not fit it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/image_encoder.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/mutations.h"

namespace tokamak::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// The error of a model whose configuration has this value at `path`, a JSON pointer.
std::string ErrorWith(const std::string& path, const Json& value) {
  Json config = Json::parse(R"({"architectures": ["MiniCPMV4_6ForConditionalGeneration"],
      "image_token_id": 7, "insert_layer_id": 1, "tie_word_embeddings": true,
      "text_config": {"model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "hidden_act": "silu",
      "max_position_embeddings": 256, "rms_norm_eps": 1e-5}, "vision_config": {"hidden_size": 24,
      "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 10,
      "patch_size": 4}})");
  config[Json::json_pointer(path)] = value;
  return ErrorOf(config.dump());
}

TEST(MiniCpmV, ErrorsNameTheField) {
  const std::string vision = "/vision_config/";
  EXPECT_EQ(ErrorWith("/merger_times", 1), "");
  EXPECT_EQ(ErrorWith("/merge_kernel_size", {2, 2}), "");
  EXPECT_EQ(ErrorWith("/downsample_mode", "4x"), "");
  EXPECT_EQ(ErrorWith(vision + "window_kernel_size", {2, 2}), "");
  EXPECT_EQ(ErrorWith(vision + "insert_layer_id", 5), "");  // the outer one counts
  EXPECT_EQ(ErrorWith(vision + "model_type", "minicpmv4_6_vision"), "");
  EXPECT_THAT(ErrorWith("/merger_times", 2), HasSubstr("merger_times: "));
  EXPECT_THAT(ErrorWith("/merge_kernel_size", 2), HasSubstr("merge_kernel_size: "));
  EXPECT_THAT(ErrorWith("/merge_kernel_size", {2, 4}), HasSubstr("merge_kernel_size: "));
  EXPECT_THAT(ErrorWith(vision + "window_kernel_size", {4, 2}),
              HasSubstr("vision_config.window_kernel_size: "));
  EXPECT_THAT(ErrorWith("/drop_vision_last_layer", true), HasSubstr("drop_vision_last_layer: "));
  EXPECT_THAT(ErrorWith("/patch_size", 5), HasSubstr("patch_size: "));
  EXPECT_THAT(ErrorWith("/downsample_mode", "8x"),
              HasSubstr("downsample_mode: \"8x\" is not supported; supported are \"4x\" and "
                        "\"16x\""));
  for (const int layer : {-1, 3}) {
    EXPECT_THAT(ErrorWith("/insert_layer_id", layer),
                HasSubstr("insert_layer_id: expected an integer from 0 to 2"));
  }
  EXPECT_THAT(ErrorWith("/image_token_id", 50), HasSubstr("image_token_id: expected"));
  EXPECT_THAT(ErrorWith("/image_size", 0), HasSubstr("image_size: expected"));
  EXPECT_THAT(ErrorWith(vision + "model_type", "siglip_vision_model"),
              HasSubstr("vision_config.model_type: \"siglip_vision_model\" is not supported; "
                        "supported is \"minicpmv4_6_vision\""));
  EXPECT_THAT(ErrorWith(vision + "patch_size", 11),
              HasSubstr("vision_config.patch_size: 11 is larger than image_size, 10"));
  EXPECT_THAT(ErrorWith("/text_config/model_type", "qwen2"),
              HasSubstr("text_config.model_type: \"qwen2\" is not supported as the text model of "
                        "this architecture; supported are \"qwen3_5_text\" and \"qwen3\""));
  // Absent, it is Qwen3.5's.
  EXPECT_THAT(ErrorWith("/text_config/model_type", nullptr),
              HasSubstr("text_config.full_attention_interval: leaves no layer with full"));
}

// The tokens of images have, as in the reference, the positions of texts, so no dimension differs.
TEST(MiniCpmV, PositionsHaveOneDimension) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const std::unique_ptr<Model> model = LoadOrDie(TinyModelPath("hf/minicpm_v_35"), *ops);
  EXPECT_EQ(model->spec().cache.rope_dimensions, 1);
}

// The models have patches of 5 and of 7 pixels; rows show squares of 4 x 4 and of 2 x 2 of them.
TEST(MiniCpmV, ImagesThatDoNotFitAreRefused) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto error = [&](const char* name, std::vector<int32_t> shape, int32_t height,
                         int32_t width) {
    const std::unique_ptr<Model> model = LoadOrDie(TinyModelPath(name), *ops);
    const ImageView image{.shape = shape, .grid_height = height, .grid_width = width};
    const Result<ImageLayout> layout = model->image_encoder()->Layout(image);
    return layout.ok() ? "" : layout.status().ToString();
  };
  const char* const whole = "hf/minicpm_v_odd";
  EXPECT_EQ(error(whole, {32, 3, 5, 5}, 8, 4), "");
  EXPECT_EQ(error("hf/minicpm_v_4x", {12, 3, 7, 7}, 6, 2), "");
  EXPECT_THAT(error(whole, {24, 3, 5, 5}, 6, 4),
              HasSubstr("prepared as 6 x 4 patches, but the model takes multiples of 4 x 4 of 5 x "
                        "5 pixels: preprocessor_config.json (patch_size, downsample_mode)"));
  EXPECT_THAT(error("hf/minicpm_v_4x", {15, 3, 7, 7}, 5, 3), HasSubstr("multiples of 2 x 2"));
  EXPECT_THAT(error(whole, {32, 3, 4, 4}, 8, 4), HasSubstr("prepared as 8 x 4 patches"));
  EXPECT_THAT(error(whole, {32, 3, 5, 5}, 4, 4), HasSubstr("prepared as 4 x 4 patches"));
  EXPECT_THAT(error(whole, {0, 3, 5, 5}, 0, 4), HasSubstr("prepared as 0 x 4 patches"));
  // Twice a square of 9 patches per side, in whole rows.
  EXPECT_EQ(error(whole, {176, 3, 5, 5}, 4, 44), "");
  EXPECT_EQ(error(whole, {192, 3, 5, 5}, 4, 48),
            "invalid argument: an image has 192 patches, of at most 176; cut off a part of it");
}

}  // namespace
}  // namespace tokamak::testing
