// Errors of Qwen3.5's configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/testing/mutations.h"

namespace tokamak::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Qwen35, ErrorsNameTheField) {
  const auto error = [](const std::string& own) {
    const std::string sizes = R"("head_dim": 12, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 5, "linear_value_head_dim": 6, )";
    return ErrorOf(Config("Qwen3_5ForCausalLM", sizes + own + R"("partial_rotary_factor": 0.5,
        "rope_scaling": {"mrope_section": [1, 1, 1]})"));
  };
  EXPECT_EQ(error(""), "");
  const std::string full = R"("full_attention")", linear = R"("linear_attention")";
  const auto types = [](const std::string& a, const std::string& b) {
    return R"("layer_types": [)" + a + ", " + a + ", " + a + ", " + b + "], ";
  };
  EXPECT_EQ(error(types(linear, full)), "");
  EXPECT_EQ(error(types(full, full)), "");
  EXPECT_THAT(error(types(linear, linear)),
              HasSubstr("layer_types: leaves no layer with full attention"));
  EXPECT_THAT(error(R"("full_attention_interval": 5, )"),
              HasSubstr("full_attention_interval: leaves no layer with full attention"));
  EXPECT_THAT(error(types(full, R"("sliding_attention")")),
              HasSubstr("layer_types: \"sliding_attention\" is not supported"));
  EXPECT_THAT(error(R"("layer_types": ["full_attention"], )"),
              HasSubstr("layer_types: must name a type for each layer"));
  EXPECT_THAT(error(R"("linear_num_key_heads": 3, )"),
              HasSubstr("linear_num_key_heads: does not divide linear_num_value_heads"));
  EXPECT_THAT(error(R"("attn_output_gate": false, )"), HasSubstr("attn_output_gate: is false"));
}

TEST(Qwen35, ItsTowerHasNoFeaturesOfLayers) {
  const auto error = [](const std::string& layers) {
    return ErrorOf(Config("Qwen3_5ForConditionalGeneration", R"("image_token_id": 17,
        "text_config": {"vocab_size": 50}, "vision_config": {"depth": 2,
        "deepstack_visual_indexes": )" + layers + "}"));
  };
  constexpr const char* kError = "vision_config.deepstack_visual_indexes: must be empty";
  EXPECT_THAT(error("[]"), Not(HasSubstr(kError)));
  EXPECT_THAT(error("[1]"), HasSubstr(kError));
}

}  // namespace
}  // namespace tokamak::testing
