// Every configuration field of every family has an effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "models/testing/backends.h"
#include "models/testing/mutations.h"
#include "nn/testing/random_tensors.h"

namespace tokamak::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// The window of the first layer; 0: none.
int32_t WindowOf(const std::string& config_json) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const Result<std::unique_ptr<Model>> model = LoadModel(MakeRandomCheckpoint(config_json), *ops);
  CHECK_MSG(model.ok(), model.status().ToString());
  return (*model)->spec().cache.groups.front().window;
}

// Fields that a family reads but that do not affect logits.
const std::set<std::string> kWithoutEffect = {
    // They limit the length; nn/rope_test.cc tests their effect on scaled RoPE.
    "max_position_embeddings", "max_seq_len",
    "model_type",  // must agree with the class (llama_test.cc)
    // For multi-token prediction layers, which are not loaded.
    "mtp_num_hidden_layers", "num_mtp_layers", "num_nextn_predict_layers",
    "quantization_config",  // how weights are stored
    // They determine which other members exist.
    "rope_type", "type"};

struct Family {
  const char* architecture;
  // The configuration's own fields; several if no single configuration reads all fields.
  std::vector<std::string> configs;
  std::set<std::string> without_effect = {};  // in addition to kWithoutEffect
};

const std::string kWindow = R"("use_sliding_window": true, "sliding_window": 20, )";
const std::string kGemma = R"("hidden_act": null, "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 8, "sliding_window": 20, "query_pre_attn_scalar": 8, )";
const std::string kGemma3Text = R"("hidden_size": 24, "intermediate_size": 40,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
    "max_position_embeddings": 256, "sliding_window": 20, "sliding_window_pattern": 2)";
const std::string kGemma3Vision = R"("image_token_index": 7, "boi_token_index": 8,
    "eoi_token_index": 9, "mm_tokens_per_image": 4, "vision_config": {"hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 8,
    "patch_size": 2, "hidden_act": "gelu"})";
// The ramp is wide enough for its ends to move by whole dimensions.
const std::string kYarn = R"({"rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0,
    "original_max_position_embeddings": 64, "beta_slow": 1.0, "mscale": 1.0,
    "mscale_all_dim": 0.5})";
const std::string kGptOss = R"("head_dim": 16, "sliding_window": 20, "swiglu_limit": 0.5,
    "num_local_experts": 5, "num_experts_per_tok": 2, "rope_theta": 100.0, )";
const std::string kDeepseek = R"("num_key_value_heads": null, "first_k_dense_replace": 1,
    "moe_intermediate_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
    "topk_group": 2, "q_lora_rank": 18, "kv_lora_rank": 14, "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 5, "v_head_dim": 7, "rope_theta": 100.0, )";
const std::string kLongRope = R"("head_dim": 8, "rope_scaling": {"type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.0, 3.0, 4.0])";
// Tokens of the test are placeholders where they are 7.
const std::string kLlava = R"("image_token_index": 7, "text_config": {"hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 256)";
const std::string kVision = R"("vision_config": {"hidden_size": 24, "intermediate_size": 40,
    "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 10, "patch_size": 4)";
// Heads of three pairs, of which two rotate by rows.
const std::string kPixtralVision = R"("vision_config": {"model_type": "pixtral", "hidden_size": 24,
    "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 40,
    "patch_size": 4, "rope_theta": 100.0)";
const std::string kPixtralLlava = R"("vision_feature_select_strategy": "full", )" + kLlava + "}, ";
const std::string kMistral3 = R"("spatial_merge_size": 2, )" + kLlava +
                              R"(, "tie_word_embeddings": true, "rms_norm_eps": 1e-5,
    "hidden_act": "silu")";
// Heads of three pairs, one per section. Of the test's tokens, 7 are 17: all rows of an image.
const std::string kQwenVl = R"("image_token_id": 17, "tie_word_embeddings": false, )";
const std::string kQwenVlText = R"("hidden_size": 24, "intermediate_size": 40,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 100.0)";
const std::string kQwenVlRope = R"("rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]})";
const std::string kQwenVlVision = R"("depth": 2, "num_heads": 2, "patch_size": 2,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "rope_parameters": {"rope_theta": 10.0})";
// Objects, whose members have effects, and sizes that other fields fix.
const std::set<std::string> kQwenVlWithoutEffect = {
    "head_dim",        "hidden_size",  "num_attention_heads", "out_hidden_size",
    "rope_parameters", "rope_scaling", "text_config",         "vision_config"};
const std::string kQwen3VlText =
    R"("head_dim": 12, "rope_scaling": {"mrope_section": [2, 2, 2]}, )" + kQwenVlText + "}, ";
const std::string kQwen3VlVision = R"("vision_config": {"hidden_size": 24, "out_hidden_size": 24,
    "intermediate_size": 40, "hidden_act": "gelu", "num_position_embeddings": 9,
    "deepstack_visual_indexes": [0], )" +
                                   kQwenVlVision;
// The sections fix the fraction of a head that rotates.
const std::set<std::string> kGlm4vWithoutEffect = {
    "head_dim",        "hidden_size",           "num_attention_heads",
    "out_hidden_size", "partial_rotary_factor", "rope_parameters",
    "rope_scaling",    "text_config",           "vision_config"};
const std::string kGlm4vVision = R"("vision_config": {"hidden_size": 24, "out_hidden_size": 24,
    "intermediate_size": 40, "image_size": 8, "rms_norm_eps": 1e-5, )" +
                                 kQwenVlVision;
const std::string kGlm4vMoeText = R"("head_dim": 8, "moe_intermediate_size": 16,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, )";
const std::string kGlm4vRope = R"("partial_rotary_factor": 0.75, "rope_scaling": {
    "rope_type": "default", "mrope_section": [1, 1, 1]})";
const std::string kMiniCpmV = R"("image_token_id": 7, "insert_layer_id": 0, "image_size": 20,
    "text_config": {"model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "head_dim": 8,
    "max_position_embeddings": 256, "hidden_act": "silu", "rms_norm_eps": 1e-5, )" +
                              kWindow + R"("max_window_layers": 1}, )" + kVision;
const std::string kMpt = R"("vocab_size": 50, "d_model": 24, "n_heads": 6, "n_layers": 3,
    "max_seq_len": 256, "attn_config": {"clip_qkv": 1.0})";
const std::string kQwen2Experts = R"("moe_intermediate_size": 16, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 12, )";
const std::string kQwen3Experts = R"("moe_intermediate_size": 16, "num_experts_per_tok": 2, )";

// The sections fix the fraction of a head that rotates, and differ only for images.
const std::string kQwen35 = R"("head_dim": 12, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 5, "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4, )";
const std::set<std::string> kQwen35WithoutEffect = {
    "head_dim", "mrope_section", "partial_rotary_factor", "rope_parameters", "rope_scaling"};

// The sections fix the fraction of a head that rotates, and no layer has features of its own.
const std::set<std::string> kQwen35VlWithoutEffect = {"deepstack_visual_indexes",
                                                      "head_dim",
                                                      "hidden_size",
                                                      "num_attention_heads",
                                                      "out_hidden_size",
                                                      "rope_parameters",
                                                      "rope_scaling",
                                                      "partial_rotary_factor",
                                                      "text_config",
                                                      "vision_config"};
const std::string kQwen35VlText = R"("full_attention_interval": 2, "rope_scaling": {
    "mrope_section": [2, 2, 2]}, )" +
                                  kQwenVlText +
                                  R"(}, "vision_config": {"hidden_size": 24, "out_hidden_size": 24,
    "intermediate_size": 40, "hidden_act": "gelu", "num_position_embeddings": 9, )" +
                                  kQwenVlVision + "}";

const Family kFamilies[] = {
    // All tokens have the same type, and embeddings of ids that are not in the text have no effect.
    {"BertModel",
     {R"("vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
         "num_attention_heads": 4, "layer_norm_eps": 1e-5, "max_position_embeddings": 128,
         "type_vocab_size": 2, "hidden_act": "gelu")"},
     {"type_vocab_size", "vocab_size"}},
    {"DeepseekV2ForCausalLM",
     {kDeepseek + R"("topk_method": "group_limited_greedy", "rope_scaling": )" + kYarn,
      kDeepseek + R"("topk_method": "greedy")"}},
    {"DeepseekV3ForCausalLM",
     {kDeepseek + R"("rope_scaling": )" + kYarn, kDeepseek + R"("num_mtp_layers": 0)"}},
    {"Ernie4_5ForCausalLM", {R"("head_dim": 8)", R"("head_dim": 8, "use_bias": true)"}},
    {"Ernie4_5_ForCausalLM", {R"("head_dim": 8)"}},
    {"Exaone4ForCausalLM",
     {R"("sliding_window": 20, "sliding_window_pattern": 2)",
      R"("sliding_window": null, "rope_scaling": {"rope_type": "linear", "factor": 2.0})"}},
    {"Gemma2ForCausalLM",
     {kGemma + R"("attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0)"}},
    {"Gemma3ForCausalLM",
     {kGemma + R"("sliding_window_pattern": 2)",
      kGemma + R"("sliding_window_pattern": 2, "rope_parameters": {
          "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})"}},
    {"Gemma3ForConditionalGeneration",
     {kGemma3Vision + R"(, "text_config": {)" + kGemma3Text + "}",
      kGemma3Vision + R"(, "text_config": {)" + kGemma3Text + R"(, "rope_parameters": {
          "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}})"},
     // The first two have members with effects; the others are for texts that become tokens.
     {"text_config", "vision_config", "boi_token_index", "eoi_token_index"}},
    {"Glm4ForCausalLM", {R"("head_dim": 8)"}},
    {"Glm4MoeForCausalLM", {R"("head_dim": 8, "moe_intermediate_size": 16, "n_routed_experts": 8,
         "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2)"}},
    {"Glm4vForConditionalGeneration",
     {kQwenVl + R"("text_config": {"rope_scaling": {"mrope_section": [1, 1, 1]}, )" + kQwenVlText +
          "}, " + kGlm4vVision + "}",
      kQwenVl + R"("text_config": {"rope_parameters": {"mrope_section": [1, 1, 1],
          "partial_rotary_factor": 1.0}, )" +
          kQwenVlText + "}, " + kGlm4vVision + "}"},
     kGlm4vWithoutEffect},
    {"Glm4vMoeForConditionalGeneration",
     {kQwenVl + R"("text_config": {)" + kGlm4vMoeText + kGlm4vRope + ", " + kQwenVlText + "}, " +
      kGlm4vVision + "}"},
     kGlm4vWithoutEffect},
    {"GptOssForCausalLM",
     {kGptOss + R"("rope_scaling": )" + kYarn, kGptOss + R"("rope_parameters": )" + kYarn}},
    {"LlamaForCausalLM", {""}},
    {"LlamaForCausalLM", {R"("rope_scaling": {"rope_type": "linear", "factor": 2.0})", ""}},
    {"LlamaForCausalLM",
     {R"("rope_theta": 100.0, "rope_scaling": {"rope_type": "llama3", "factor": 4.0,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64})",
      ""}},
    {"LlamaForCausalLM", {R"("head_dim": 16, "rope_theta": 100.0, "rope_scaling": )" + kYarn, ""}},
    {"LlamaForCausalLM",
     {kLongRope + R"(}, "original_max_position_embeddings": 64)",
      kLongRope + R"(, "original_max_position_embeddings": 64})", kLongRope + "}", ""}},
    {"LlavaForConditionalGeneration",
     {kLlava + "}, " + kVision + "}",
      kLlava + R"(, "model_type": "mistral", "sliding_window": 20}, )" + kVision +
          R"(, "model_type": "siglip_vision_model"})",
      kLlava + R"(, "model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 1,
          "sliding_window": 20}, )" +
          kVision + "}"},
     {"text_config", "vision_config"}},
    {"LlavaForConditionalGeneration",
     {kPixtralLlava + kPixtralVision + "}",
      kPixtralLlava + kPixtralVision + R"(, "rope_parameters": {"rope_theta": 10.0}})"},
     {"image_size", "text_config", "vision_config", "vision_feature_select_strategy"}},
    {"LlavaNextForConditionalGeneration",
     {kLlava + R"(}, "image_grid_pinpoints": [[60, 60]], )" + kVision + "}",
      kLlava + R"(}, "image_grid_pinpoints": [[60, 60]],
          "vision_feature_select_strategy": "full", )" +
          kVision + R"(, "model_type": "siglip_vision_model"})"},
     {"text_config", "vision_config", "vision_feature_select_strategy"}},
    // The outer image_size limits the images; goldens cover the tower's.
    {"MiniCPMV4_6ForConditionalGeneration",
     {R"("tie_word_embeddings": false, )" + kMiniCpmV +
      R"(, "layer_norm_eps": 1e-2, "hidden_act": "gelu"})"},
     {"text_config", "vision_config", "image_size"}},
    {"MistralForCausalLM", {R"("sliding_window": 20)"}},
    {"Mistral3ForConditionalGeneration",
     {kMistral3 + R"(, "sliding_window": 40}, )" + kPixtralVision + "}"},
     {"image_size", "text_config", "vision_config"}},
    {"MixtralForCausalLM",
     {R"("sliding_window": 20, "num_local_experts": 5, "num_experts_per_tok": 2)"}},
    {"MPTForCausalLM", {kMpt}, {"norm_type"}},  // two of its values differ only in precision
    {"MptForCausalLM", {kMpt}, {"norm_type"}},
    {"Olmo2ForCausalLM", {""}},
    {"Phi3ForCausalLM",
     {kLongRope + R"(}, "original_max_position_embeddings": 64, "sliding_window": 20)",
      kLongRope + R"(, "original_max_position_embeddings": 64})", kLongRope + "}",
      R"("head_dim": 8, "partial_rotary_factor": 0.5)",
      R"("rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}, "head_dim": 8)"}},
    {"Qwen2ForCausalLM", {kWindow + R"("max_window_layers": 1)"}},
    {"Qwen2VLForConditionalGeneration",
     {kQwenVl + kWindow + R"("max_window_layers": 1, )" + kQwenVlText + ", " + kQwenVlRope +
          R"(, "vision_config": {"embed_dim": 24, "hidden_size": 24, "mlp_ratio": 4, )" +
          kQwenVlVision + "}",
      kQwenVl + R"("text_config": {)" + kWindow + R"("max_window_layers": 1, )" + kQwenVlText +
          R"(, "rope_parameters": {"mrope_section": [1, 1, 1]}}, "vision_config": {
          "embed_dim": 24, "hidden_size": 24, )" +
          kQwenVlVision + "}"},
     kQwenVlWithoutEffect},
    {"Qwen2_5_VLForConditionalGeneration",
     {kQwenVl + kWindow + R"("max_window_layers": 1, )" + kQwenVlText + ", " + kQwenVlRope +
      R"(, "vision_config": {"hidden_size": 24, "out_hidden_size": 24, "intermediate_size": 40,
          "window_size": 4, "fullatt_block_indexes": [1], )" +
      kQwenVlVision + "}"},
     kQwenVlWithoutEffect},
    {"Qwen2MoeForCausalLM",
     {kQwen2Experts + kWindow + R"("max_window_layers": 1, "num_experts": 5)",
      kQwen2Experts + R"("num_local_experts": 5, "mlp_only_layers": [0])"}},
    {"Qwen3ForCausalLM", {kWindow + R"("max_window_layers": 1)"}},
    {"Qwen3VLForConditionalGeneration",
     {kQwenVl + R"("text_config": {)" + kQwen3VlText + kQwen3VlVision + "}"},
     kQwenVlWithoutEffect},
    {"Qwen3VLMoeForConditionalGeneration",
     {kQwenVl + R"("text_config": {"num_experts": 5, )" + kQwen3Experts + kQwen3VlText +
          kQwen3VlVision + "}",
      kQwenVl + R"("text_config": {"num_local_experts": 5, "mlp_only_layers": [0], )" +
          kQwen3Experts + kQwen3VlText + kQwen3VlVision + "}"},
     kQwenVlWithoutEffect},
    {"Qwen3MoeForCausalLM",
     {kQwen3Experts + kWindow + R"("num_experts": 5)",
      kQwen3Experts + R"("num_local_experts": 5, "mlp_only_layers": [0])"}},
    {"Qwen3_5ForCausalLM",
     {kQwen35 + R"("rope_theta": 100.0, "partial_rotary_factor": 0.5, "full_attention_interval": 2,
          "rope_scaling": {"mrope_section": [1, 1, 1]})",
      kQwen35 + R"("layer_types": ["linear_attention", "linear_attention", "full_attention",
          "linear_attention"], "rope_parameters": {"rope_theta": 100.0,
          "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 1]})"},
     kQwen35WithoutEffect},
    {"Qwen3_5ForConditionalGeneration",
     {kQwenVl + R"("text_config": {"partial_rotary_factor": 1.0, )" + kQwen35 + kQwen35VlText},
     kQwen35VlWithoutEffect},
    {"SmolLM3ForCausalLM", {kWindow + R"("rope_theta": 10000.0)"}},
};

class FamilyTest : public ::testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) {
                           return info.param.architecture + ("_" + std::to_string(info.index));
                         });

TEST_P(FamilyTest, EveryFieldChangesTheLogits) {
  std::vector<std::string> configs;
  for (const std::string& own : GetParam().configs) {
    configs.push_back(Config(GetParam().architecture, own));
  }
  std::set<std::string> without_effect = kWithoutEffect;
  without_effect.insert(GetParam().without_effect.begin(), GetParam().without_effect.end());
  ExpectEveryFieldCounts(configs, without_effect);
}

TEST(Families, EachArchitectureIsTested) {
  for (const KnownModel& known : KnownModels()) {
    EXPECT_TRUE(std::any_of(std::begin(kFamilies), std::end(kFamilies), [&](const Family& family) {
      return family.architecture == known.architecture;
    })) << known.architecture;
  }
}

// Fields for which null and absence mean different things.
TEST(Families, NullDiffersFromAnAbsentField) {
  for (const auto& [architecture, own, field] :
       std::initializer_list<std::tuple<const char*, std::string, const char*>>{
           {"DeepseekV2ForCausalLM", kDeepseek + R"("n_group": 4)", "n_shared_experts"},
           {"DeepseekV3ForCausalLM", kDeepseek + R"("n_group": 4)", "n_shared_experts"},
           {"DeepseekV3ForCausalLM", kDeepseek + R"("n_group": 4)", "q_lora_rank"},
           {"Gemma2ForCausalLM", kGemma + R"("attn_logit_softcapping": 50.0)",
            "attn_logit_softcapping"},
           {"Gemma2ForCausalLM", kGemma + R"("final_logit_softcapping": 30.0)",
            "final_logit_softcapping"},
           {"GptOssForCausalLM", kGptOss + R"("rope_scaling": )" + kYarn, "sliding_window"},
           {"MistralForCausalLM", R"("sliding_window": 20)", "sliding_window"}}) {
    const std::string config = Config(architecture, own);
    Json mutant = Json::parse(config);
    mutant[field] = nullptr;
    ExpectDifferent(config, mutant.dump(), std::string(architecture) + ": null for " + field);
  }
}

// The reference does not take a base from there either.
TEST(Gemma3, RefusesRopeParametersOutsideALayerType) {
  EXPECT_THAT(
      ErrorOf(Config("Gemma3ForCausalLM", kGemma + R"("rope_parameters": {"rope_theta": 1000.0})")),
      HasSubstr("rope_parameters.rope_theta"));
}

TEST(Gemma3, OlderFieldsGiveTheBasesOfLayerTypesWithoutOne) {
  const auto with = [](const char* rope) {
    return LastLogits(
        Config("Gemma3ForCausalLM", kGemma + R"("sliding_window_pattern": 2, "rope_theta": 1000.0,
                                         "rope_local_base_freq": 100.0, "rope_parameters": )" +
                                        rope));
  };
  EXPECT_EQ(with(R"({"full_attention": {"rope_type": "default"}})"), with("null"));
}

TEST(Gemma3, ErrorsOfImagesNameTheField) {
  const auto error = [](const std::string& fields) {
    return ErrorOf(Config("Gemma3ForConditionalGeneration",
                          kGemma3Vision + fields + R"(, "text_config": {)" + kGemma3Text + "}"));
  };
  EXPECT_EQ(error(""), "");
  for (const char* rows : {"3", "9", "64"}) {  // no square; no divisor of 4 patches per side
    EXPECT_THAT(error(std::string(R"(, "mm_tokens_per_image": )") + rows),
                HasSubstr(std::string("mm_tokens_per_image: is ") + rows +
                          ", but must be the square of a divisor of 4"));
  }
  EXPECT_THAT(error(R"(, "image_token_index": 50)"), HasSubstr("image_token_index"));
  EXPECT_THAT(error(R"(, "boi_token_index": 50)"), HasSubstr("boi_token_index"));
  EXPECT_THAT(error(R"(, "eoi_token_index": 50)"), HasSubstr("eoi_token_index"));
  EXPECT_THAT(error(R"(, "vision_config": {"model_type": "clip_vision_model"})"),
              HasSubstr("vision_config: is CLIP's; this architecture needs SigLIP's"));
}

TEST(Mpt, RefusesOtherNormsThanLayerNorm) {
  EXPECT_THAT(ErrorOf(Config("MptForCausalLM", kMpt + R"(, "norm_type": "rmsnorm")")),
              HasSubstr("norm_type: \"rmsnorm\" is not supported"));
  EXPECT_EQ(ErrorOf(Config("MptForCausalLM", kMpt + R"(, "norm_type": "layernorm")")), "");
}

// Later checkpoints write null; those without the field mean the first model's 4,096.
TEST(Mistral, NullMeansNoWindowAndAnAbsentFieldTheDefault) {
  Json config = Json::parse(Config("MistralForCausalLM", R"("max_position_embeddings": 8192)"));
  EXPECT_EQ(WindowOf(config.dump()), 4096);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(WindowOf(config.dump()), 0);
}

TEST(Llava, ErrorsNameTheField) {
  const auto error = [](const std::string& vision, const std::string& outer = "",
                        const std::string& text = "") {
    return ErrorOf(Config("LlavaForConditionalGeneration",
                          outer + kLlava + text + "}, " + kVision + vision + "}"));
  };
  EXPECT_EQ(error(""), "");
  EXPECT_THAT(error(R"(, "model_type": "dinov2")"),
              HasSubstr("vision_config.model_type: \"dinov2\" is not supported; supported are "
                        "\"clip_vision_model\" and \"siglip_vision_model\""));
  EXPECT_THAT(error("", "", R"(, "model_type": "gemma")"),
              HasSubstr("text_config.model_type: \"gemma\" is not supported"));
  EXPECT_THAT(error(R"(, "patch_size": 11)"),
              HasSubstr("vision_config.patch_size: 11 is larger than image_size, 10"));
  EXPECT_THAT(error(R"(, "num_channels": 4)"), HasSubstr("vision_config.num_channels: is 4"));
  EXPECT_THAT(error(R"(, "hidden_act": "relu")"),
              HasSubstr("vision_config.hidden_act: \"relu\" is not supported"));
  EXPECT_THAT(error(R"(, "rope_theta": 1.0)"), HasSubstr("vision_config.rope_theta (1)"));
  EXPECT_THAT(error("", R"("vision_feature_layer": -5, )"),
              HasSubstr("vision_feature_layer: expected an integer from -4 to 3, got -5"));
  EXPECT_THAT(error("", R"("vision_feature_layer": [], )"),
              HasSubstr("vision_feature_layer: expected at least one layer, got []"));
  EXPECT_THAT(error("", R"("vision_feature_select_strategy": "cls", )"),
              HasSubstr("vision_feature_select_strategy: \"cls\" is not supported"));
  EXPECT_THAT(error("", R"("image_token_id": 8, )"), HasSubstr("image_token_id: is 8"));
  EXPECT_THAT(error("", R"("vision_feature_pooling": 2, )"),
              HasSubstr("the fields vision_feature_pooling (2)"));
  EXPECT_THAT(ErrorOf(Config("LlavaForConditionalGeneration",
                             R"("text_config": {"vocab_size": 50}, "image_token_index": 50)")),
              HasSubstr("vision_config: is missing"));
}

TEST(LlavaNext, ErrorsNameTheField) {
  const auto error = [](const std::string& outer, const std::string& vision = "") {
    return ErrorOf(Config("LlavaNextForConditionalGeneration",
                          outer + kLlava + "}, " + kVision + vision + "}"));
  };
  const std::string grid = R"("image_grid_pinpoints": [[20, 10]], )";
  EXPECT_EQ(error(grid), "");
  EXPECT_THAT(
      error(R"("image_grid_pinpoints": [[20, 15]], )"),
      HasSubstr("image_grid_pinpoints: has 20 x 15, which tiles of 10 pixels (image_size)"));
  EXPECT_THAT(error(""), HasSubstr("image_grid_pinpoints: has 336 x 672, which tiles of 10"));
  EXPECT_THAT(error(R"("image_grid_pinpoints": [], )"),
              HasSubstr("image_grid_pinpoints: expected at least one resolution, got []"));
  EXPECT_THAT(error(R"("image_grid_pinpoints": [[10]], )"),
              HasSubstr("image_grid_pinpoints[0]: expected a height and a width, got [10]"));
  EXPECT_THAT(error(grid + R"("vision_feature_select_strategy": "full", )"),
              HasSubstr("vision_feature_select_strategy: \"full\" does not give one feature per "
                        "patch of this tower"));
  EXPECT_THAT(error(grid, R"(, "model_type": "siglip_vision_model")"),
              HasSubstr("vision_feature_select_strategy: \"default\" does not give one"));
}

TEST(Pixtral, ErrorsNameTheField) {
  const auto error = [](const std::string& vision, const std::string& outer = "") {
    return ErrorOf(Config("Mistral3ForConditionalGeneration",
                          kMistral3 + "}, " + outer + kPixtralVision + vision + "}"));
  };
  EXPECT_EQ(error(""), "");
  EXPECT_EQ(error(R"(, "rope_parameters": {"rope_type": "default"})"), "");
  EXPECT_THAT(error(R"(, "model_type": "siglip_vision_model")"),
              HasSubstr("vision_config.model_type: is \"siglip_vision_model\""));
  EXPECT_THAT(error(R"(, "num_attention_heads": 8)"),
              HasSubstr("vision_config.num_attention_heads: makes heads of 3 dimensions"));
  EXPECT_THAT(error(R"(, "head_dim": 8)"), HasSubstr("vision_config.head_dim: is 8"));
  EXPECT_THAT(error(R"(, "image_size": 7)"),
              HasSubstr("vision_config.image_size: 7 is less than a row's patch_size 4 · 2"));
  EXPECT_THAT(error(R"(, "image_size": [40, 40])"),
              HasSubstr("vision_config.image_size: expected an integer"));
  EXPECT_THAT(error(R"(, "num_channels": 4)"), HasSubstr("vision_config.num_channels: is 4"));
  EXPECT_THAT(error(R"(, "hidden_act": "relu")"),
              HasSubstr("vision_config.hidden_act: \"relu\" is not supported"));
  EXPECT_THAT(error(R"(, "rope_parameters": {"rope_type": "yarn"})"),
              HasSubstr("vision_config.rope_parameters.rope_type: \"yarn\" is not supported"));
  EXPECT_THAT(error(R"(, "layer_norm_eps": 1e-5)"), HasSubstr("vision_config.layer_norm_eps"));
  EXPECT_THAT(error("", R"("vision_feature_layer": [1, 2], )"),
              HasSubstr("vision_feature_layer: has several layers"));
  EXPECT_THAT(error("", R"("spatial_merge_size": 0, )"), HasSubstr("spatial_merge_size: expected"));
  EXPECT_THAT(error("", R"("image_token_id": 8, )"), HasSubstr("image_token_id: is 8"));
  EXPECT_THAT(error("", R"("vision_feature_select_strategy": "full", )"),
              HasSubstr("the fields vision_feature_select_strategy"));
  EXPECT_THAT(
      ErrorOf(Config("LlavaForConditionalGeneration", kLlava + "}, " + kPixtralVision + "}")),
      HasSubstr("vision_feature_select_strategy: must be \"full\""));
}

TEST(QwenVl, ErrorsNameTheField) {
  const auto error = [](const std::string& vision, const std::string& text = kQwenVlRope) {
    return ErrorOf(Config("Qwen2VLForConditionalGeneration", kQwenVl + kQwenVlText + ", " + text +
                                                                 R"(, "vision_config": {
                              "embed_dim": 24, "hidden_size": 24, )" +
                                                                 kQwenVlVision + vision + "}"));
  };
  EXPECT_EQ(error(""), "");
  EXPECT_THAT(error(R"(, "model_type": "qwen2_5_vl")"),
              HasSubstr("vision_config.model_type: \"qwen2_5_vl\" is not supported"));
  EXPECT_THAT(
      error(R"(, "hidden_size": 25)"),
      HasSubstr("vision_config.hidden_size: is 25, but the text model's hidden_size is 24"));
  EXPECT_THAT(error(R"(, "num_heads": 4)"), HasSubstr("vision_config.num_heads: makes heads of 6"));
  EXPECT_THAT(error(R"(, "in_chans": 4)"), HasSubstr("vision_config.in_chans: is 4"));
  EXPECT_THAT(error(R"(, "window_size": 4)"), HasSubstr("vision_config.window_size (4)"));
  EXPECT_THAT(error("", R"("rope_scaling": {"type": "mrope", "mrope_section": [1, 1]})"),
              HasSubstr("rope_scaling.mrope_section: has 2 pairs, expected 3"));
  EXPECT_THAT(error("", R"("rope_scaling": {"type": "linear", "mrope_section": [1, 1, 1]})"),
              HasSubstr("rope_scaling.factor: is missing"));
}

TEST(Qwen3Vl, ErrorsNameTheField) {
  const auto error = [](const std::string& vision, const std::string& rope = kQwenVlRope) {
    return ErrorOf(Config("Qwen3VLForConditionalGeneration",
                          kQwenVl + R"("text_config": {"head_dim": 6, )" + kQwenVlText + ", " +
                              rope + "}, " + kQwen3VlVision + vision + "}"));
  };
  EXPECT_EQ(error(""), "");
  EXPECT_THAT(error(R"(, "model_type": "qwen2_5_vl")"),
              HasSubstr("vision_config.model_type: \"qwen2_5_vl\" is not supported; supported is "
                        "\"qwen3_vl_vision\""));
  EXPECT_THAT(
      error(R"(, "num_position_embeddings": 10)"),
      HasSubstr("vision_config.num_position_embeddings: is 10, which is not the square of a"));
  for (const char* layers : {"[2]", "[1, 1]", "[1, 0]"}) {
    EXPECT_THAT(
        error(R"(, "deepstack_visual_indexes": )" + std::string(layers)),
        HasSubstr("vision_config.deepstack_visual_indexes: must name some of the 2 layers"));
  }
  EXPECT_THAT(error(R"(, "depth": 9, "deepstack_visual_indexes": [0, 1, 2, 3, 4])"),
              HasSubstr("vision_config.deepstack_visual_indexes: has 5 layers, but the text model "
                        "has only 4"));
  EXPECT_THAT(error("", R"("rope_scaling": {"mrope_section": [2, 1]})"),
              HasSubstr("rope_scaling.mrope_section: has 2 sections, expected 3"));
  EXPECT_THAT(error("", R"("rope_scaling": {"mrope_section": [1, 1, 1],
                            "mrope_interleaved": false})"),
              HasSubstr("rope_scaling.mrope_interleaved: is false"));
}

TEST(Glm4v, ErrorsNameTheField) {
  const auto error = [](const std::string& vision, const std::string& text = "",
                        const std::string& outer = "") {
    return ErrorOf(Config("Glm4vForConditionalGeneration",
                          kQwenVl + outer + R"("text_config": {"rope_scaling": {"mrope_section":
                              [1, 1, 1]}, )" +
                              kQwenVlText + text + "}, " + kGlm4vVision + vision + "}"));
  };
  EXPECT_EQ(error(""), "");
  EXPECT_THAT(error(R"(, "model_type": "glm4v_moe_vision")"),
              HasSubstr("vision_config.model_type: \"glm4v_moe_vision\" is not supported"));
  EXPECT_THAT(error("", R"(, "model_type": "glm4v_moe_text")"),
              HasSubstr("text_config.model_type: is \"glm4v_moe_text\""));
  EXPECT_THAT(error(R"(, "out_hidden_size": 25)"),
              HasSubstr("vision_config.out_hidden_size: is 25, but the text model's"));
  EXPECT_THAT(error(R"(, "image_size": 1)"),
              HasSubstr("vision_config.image_size: 1 is less than patch_size 2"));
  EXPECT_THAT(error("", R"(, "head_dim": 8, "partial_rotary_factor": 0.75)"),
              HasSubstr("text_config.head_dim: differs from hidden_size / num_attention_heads"));
  EXPECT_THAT(error("", R"(, "attention_bias": false)"),
              HasSubstr("text_config.attention_bias: is false"));
  EXPECT_THAT(error("", R"(, "partial_rotary_factor": 0.5)"), HasSubstr("rotary dimensions"));
  EXPECT_THAT(error("", "", R"("image_token_id": 50, )"), HasSubstr("image_token_id: expected"));
}

TEST(Families, BothNamesOfAFieldMustAgree) {
  const auto gemma = [](const char* act) {
    return ErrorOf(Config("Gemma2ForCausalLM", std::string(R"("head_dim": 8,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_act": )") +
                                                   act));
  };
  EXPECT_THAT(gemma("\"silu\""), HasSubstr("hidden_act: is \"silu\""));
  EXPECT_EQ(gemma("\"gelu_pytorch_tanh\""), "");
  const auto gpt_oss =
      [](const std::string& alias) {
        return ErrorOf(Config("GptOssForCausalLM", R"("head_dim": 8, "num_local_experts": 4,
        "num_experts_per_tok": 2, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
        "original_max_position_embeddings": 32}, )" + alias));
      };
  EXPECT_THAT(gpt_oss(R"("experts_per_token": 3)"), HasSubstr("experts_per_token: is 3"));
  EXPECT_THAT(gpt_oss(R"("initial_context_length": 64)"),
              HasSubstr("initial_context_length: is 64"));
  EXPECT_EQ(gpt_oss(R"("experts_per_token": 2, "initial_context_length": 32)"), "");
}

TEST(Glm4Moe, RefusesGroupsOfTooFewExperts) {
  const auto with = [](const std::string& groups) {
    return ErrorOf(Config("Glm4MoeForCausalLM", R"("head_dim": 8, "moe_intermediate_size": 16,
        "n_routed_experts": 8, "num_experts_per_tok": 3, )" +
                                                    groups));
  };
  EXPECT_THAT(with(R"("n_group": 4, "topk_group": 1)"),
              HasSubstr("topk_group: leaves fewer experts than num_experts_per_tok"));
  EXPECT_THAT(with(R"("n_group": 8, "topk_group": 4)"), HasSubstr("n_group: makes groups of one"));
  EXPECT_EQ(with(R"("n_group": 4, "topk_group": 2)"), "");
}

}  // namespace
}  // namespace tokamak::testing
