// Gemma 3 with images: its text model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "models/registry.h"
#include "models/testing/mutations.h"
#include "nn/testing/random_tensors.h"
#include "ops/count/count_ops.h"

namespace tokamak::testing {
namespace {

using ::testing::HasSubstr;

// Published text_configs have little more than this; the class's defaults apply to the rest.
TEST(Gemma3Multimodal, TheTextConfigEqualsThatOfTheTextModel) {
  const auto config = [](const std::string& text, const std::string& outer = "") {
    return R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "mm_tokens_per_image": 4, "vision_config": {"hidden_size": 24, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 8, "patch_size": 4}, )" +
           outer + R"("text_config": {"model_type": "gemma3_text", "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 4, "torch_dtype": "bfloat16")" +
           text + "}}";
  };
  const std::string small = R"(, "vocab_size": 50, "max_position_embeddings": 256,
      "sliding_window": 20, "sliding_window_pattern": 2)";
  const std::unique_ptr<CountOps> ops = MakeCountOps();
  const auto model = LoadModel(MakeRandomCheckpoint(config("")), *ops, {.task = Task::kEmbed});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const ModelSpec& spec = (*model)->spec();
  EXPECT_EQ(spec.architecture, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(spec.vocab_size, 262208);
  EXPECT_EQ(spec.max_context, 131072);
  // Queries, keys, values, output; MLP; norms.
  const int64_t layer = 24 * 256 * (8 + 4 + 4 + 8) + 3 * 24 * 40 + 4 * 24 + 2 * 256;
  EXPECT_EQ(spec.num_parameters, 4 * layer + 262208 * 24 + 24);

  EXPECT_THAT(ErrorOf(config(R"(, "mystery": 1)")), HasSubstr("text_config.mystery (1)"));
  EXPECT_THAT(ErrorOf(config("", R"("mystery": 1, )")), HasSubstr("the fields mystery (1)"));
  EXPECT_THAT(ErrorOf(config(R"(, "head_dim": 0)")), HasSubstr("text_config.head_dim: expected"));
  const std::string ids = R"("image_token_index": 7, "boi_token_index": 8, "eoi_token_index": 9, )";
  ExpectDifferent(config(small, ids), config(small, ids + R"("tie_word_embeddings": false, )"),
                  "tie_word_embeddings");
  EXPECT_THAT(ErrorOf(R"({"architectures": ["Gemma3ForConditionalGeneration"]})"),
              HasSubstr("text_config: is missing"));
  EXPECT_THAT(ErrorOf(R"({"architectures": ["Gemma3ForConditionalGeneration"],
                          "text_config": {"model_type": "gemma3_text"}})"),
              HasSubstr("text_config.num_hidden_layers: is missing"));
}

}  // namespace
}  // namespace tokamak::testing
