// The families that are Llama with something else: every configuration field of theirs counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/check.h"
#include "models/testing/backends.h"
#include "models/testing/mutations.h"
#include "nn/testing/random_tensors.h"
#include "ops/count/count_ops.h"

namespace tokamak::testing {
namespace {

using ::testing::HasSubstr;

// A config.json of this class with the fields that all of them have, and `own` ones.
std::string Config(const std::string& architecture, const std::string& own) {
  const bool gemma = own.find("hidden_activation") != std::string::npos;  // its name of the field
  return R"({"architectures": [")" + architecture + R"("], )" +
         (gemma ? "" : R"("hidden_act": "silu",)") + R"(
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, )" +
         own + "}";
}

// What loading says against a configuration; empty: nothing.
std::string ErrorOf(const std::string& config_json) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto model = LoadModel(MakeRandomCheckpoint(config_json), *ops);
  return model.ok() ? "" : model.status().ToString();
}

// Of the first layer; 0: none.
int32_t WindowOf(const std::string& config_json) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const Result<std::unique_ptr<Model>> model = LoadModel(MakeRandomCheckpoint(config_json), *ops);
  CHECK_MSG(model.ok(), model.status().ToString());
  return (*model)->spec().cache.groups.front().window;
}

TEST(Mistral, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("MistralForCausalLM", R"("head_dim": 8, "sliding_window": 20)"),
                    {{"sliding_window", "19"},
                     {"sliding_window", "null"},
                     {"head_dim", "12"},
                     {"rope_theta", "2000.0"},
                     {"tie_word_embeddings", "true"},
                     {"rms_norm_eps", "1e-2"}});
}

// Later checkpoints write null; those from before the field mean the first model's 4,096.
TEST(Mistral, NullIsNoWindowAndAbsenceIsTheFirstModels) {
  const std::string start = R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1,
    "num_attention_heads": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192)";
  EXPECT_EQ(WindowOf(start + R"(, "sliding_window": null})"), 0);
  EXPECT_EQ(WindowOf(start + "}"), 4096);
}

TEST(Mixtral, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("MixtralForCausalLM", R"("head_dim": 8, "sliding_window": 20,
                           "num_local_experts": 5, "num_experts_per_tok": 2)"),
                    {{"sliding_window", "19"},
                     {"sliding_window", "null"},
                     {"num_local_experts", "4"},
                     {"num_experts_per_tok", "3"},
                     {"intermediate_size", "48"},
                     {"rope_theta", "2000.0"}});
}

TEST(Qwen2, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("Qwen2ForCausalLM", R"("use_sliding_window": true,
                           "sliding_window": 20, "max_window_layers": 1)"),
                    {{"use_sliding_window", "false"},
                     {"sliding_window", "19"},
                     {"max_window_layers", "2"},
                     {"layer_types", R"(["sliding_attention", "full_attention", "full_attention",
                                         "full_attention"])"},
                     {"tie_word_embeddings", "true"},
                     {"rope_theta", "2000.0"}});
}

TEST(Qwen2Moe, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("Qwen2MoeForCausalLM", R"("use_sliding_window": true,
                           "sliding_window": 20, "max_window_layers": 3,
                           "moe_intermediate_size": 16, "shared_expert_intermediate_size": 12,
                           "num_experts": 5, "num_experts_per_tok": 2)"),
                    {{"use_sliding_window", "false"},
                     {"sliding_window", "19"},
                     {"max_window_layers", "2"},
                     {"moe_intermediate_size", "20"},
                     {"shared_expert_intermediate_size", "16"},
                     {"num_experts", "4"},
                     {"num_experts_per_tok", "3"},
                     {"norm_topk_prob", "true"},
                     {"qkv_bias", "false"},
                     {"decoder_sparse_step", "2"},
                     {"mlp_only_layers", "[1]"}});
}

TEST(SmolLm3, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(
      Config("SmolLM3ForCausalLM", R"("use_sliding_window": true, "sliding_window": 20)"),
      {{"use_sliding_window", "false"},
       {"sliding_window", "19"},
       {"no_rope_layer_interval", "3"},
       {"no_rope_layers", "[1, 0, 1, 1]"},
       {"layer_types", R"(["sliding_attention", "full_attention", "full_attention",
                           "full_attention"])"},
       {"attention_bias", "true"},
       {"mlp_bias", "true"},
       {"tie_word_embeddings", "false"},
       {"rope_theta", "10000.0"}});
}

TEST(Phi3, EveryFieldChangesTheLogits) {
  const std::string factors = R"("short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0])";
  ExpectFieldsCount(Config("Phi3ForCausalLM", R"("head_dim": 6, "sliding_window": 20,
             "partial_rotary_factor": 0.7, "original_max_position_embeddings": 64,
             "rope_scaling": {"type": "longrope", )" +
                                                  factors + "}"),
                    {{"sliding_window", "19"},
                     {"sliding_window", "null"},
                     {"original_max_position_embeddings", "256"},
                     {"rope_scaling.long_factor", "[1.0, 5.0]"},
                     {"rope_scaling", "null"},
                     {"rope_theta", "2000.0"}});
  ExpectFieldsCount(Config("Phi3ForCausalLM", R"("head_dim": 8, "partial_rotary_factor": 0.5)"),
                    {{"partial_rotary_factor", "0.75"}, {"head_dim", "12"}});
}

TEST(Gemma2, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("Gemma2ForCausalLM", R"("head_dim": 8, "sliding_window": 20,
                           "query_pre_attn_scalar": 8, "hidden_activation": "gelu_pytorch_tanh",
                           "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0)"),
                    {{"head_dim", "12"},
                     {"sliding_window", "19"},
                     {"query_pre_attn_scalar", "16"},
                     {"hidden_activation", "\"silu\""},
                     {"attn_logit_softcapping", "3.0"},
                     {"attn_logit_softcapping", "null"},
                     {"final_logit_softcapping", "6.0"},
                     {"final_logit_softcapping", "null"},
                     {"tie_word_embeddings", "false"},
                     {"layer_types", R"(["full_attention", "sliding_attention", "full_attention",
                                         "full_attention"])"},
                     {"rope_theta", "2000.0"}});
}

TEST(Gemma3, EveryFieldChangesTheLogits) {
  const std::string own = R"("head_dim": 8, "sliding_window": 20, "query_pre_attn_scalar": 8,
                             "hidden_activation": "gelu_pytorch_tanh")";
  ExpectFieldsCount(Config("Gemma3ForCausalLM", own + R"(, "sliding_window_pattern": 2)"),
                    {{"sliding_window", "19"},
                     {"sliding_window_pattern", "3"},
                     {"query_pre_attn_scalar", "16"},
                     {"final_logit_softcapping", "6.0"},
                     {"rope_theta", "2000.0"},
                     {"rope_local_base_freq", "2000.0"},
                     {"rope_scaling", R"({"rope_type": "linear", "factor": 8.0})"}});
  const std::string ropes = R"(, "sliding_window_pattern": 2, "rope_parameters": {
      "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})";
  ExpectFieldsCount(Config("Gemma3ForCausalLM", own + ropes),
                    {{"rope_parameters.full_attention", R"({"rope_theta": 2000.0})"},
                     {"rope_parameters.sliding_attention", R"({"rope_theta": 200.0})"}});
}

// Published text_configs have little more than this; what they leave out is the class's.
TEST(Gemma3WithImages, TheTextConfigIsReadAsTheTextModelsOwn) {
  const auto config = [](const std::string& text, const std::string& outer = "") {
    return R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "image_token_index": 262144, "vision_config": {"hidden_size": 8}, )" +
           outer + R"("text_config": {"model_type": "gemma3_text", "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 4, "torch_dtype": "bfloat16")" +
           text + "}}";
  };
  const std::string small = R"(, "vocab_size": 50, "max_position_embeddings": 256,
      "sliding_window": 20, "sliding_window_pattern": 2)";
  ExpectFieldsCount(config(small),
                    {{"text_config.sliding_window", "19"},
                     {"text_config.sliding_window_pattern", "3"},
                     {"text_config.num_attention_heads", "4"},
                     {"text_config.num_key_value_heads", "2"},
                     {"text_config.head_dim", "128"},
                     {"text_config.rms_norm_eps", "1e-2"},
                     {"text_config.rope_scaling", R"({"rope_type": "linear", "factor": 8.0})"}});
  const std::unique_ptr<CountOps> ops = MakeCountOps();
  const auto model = LoadModel(MakeRandomCheckpoint(config("")), *ops);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const ModelSpec& spec = (*model)->spec();
  EXPECT_EQ(spec.architecture, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(spec.vocab_size, 262208);
  EXPECT_EQ(spec.max_context, 131072);
  // Queries, keys, values, output; MLP; norms.
  const int64_t layer = 24 * 256 * (8 + 4 + 4 + 8) + 3 * 24 * 40 + 4 * 24 + 2 * 256;
  EXPECT_EQ(spec.num_parameters, 4 * layer + 262208 * 24 + 24);

  EXPECT_THAT(ErrorOf(config(R"(, "mystery": 1)")), HasSubstr("text_config.mystery (1)"));
  EXPECT_THAT(ErrorOf(config("", R"("mystery": 1, )")), HasSubstr("with mystery (1)"));
  EXPECT_THAT(ErrorOf(config(R"(, "head_dim": 0)")), HasSubstr("text_config.head_dim: expected"));
  ExpectDifferent(config(small), config(small, R"("tie_word_embeddings": false, )"),
                  "tie_word_embeddings");
  EXPECT_THAT(ErrorOf(R"({"architectures": ["Gemma3ForConditionalGeneration"]})"),
              HasSubstr("text_config: is missing"));
  EXPECT_THAT(ErrorOf(R"({"architectures": ["Gemma3ForConditionalGeneration"],
                          "text_config": {"model_type": "gemma3_text"}})"),
              HasSubstr("text_config.num_hidden_layers: is missing"));
}

TEST(Olmo2, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("Olmo2ForCausalLM", R"("attention_bias": false)"),
                    {{"attention_bias", "true"},
                     {"rms_norm_eps", "1e-2"},
                     {"num_key_value_heads", "4"},
                     {"tie_word_embeddings", "true"},
                     {"rope_theta", "2000.0"}});
}

TEST(Glm4, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("Glm4ForCausalLM", R"("head_dim": 8)"),
                    {{"head_dim", "12"},
                     {"attention_bias", "false"},
                     {"partial_rotary_factor", "1.0"},
                     {"rope_theta", "2000.0"}});
}

TEST(Glm4Moe, EveryFieldChangesTheLogits) {
  ExpectFieldsCount(Config("Glm4MoeForCausalLM", R"("head_dim": 8, "moe_intermediate_size": 16,
                           "n_routed_experts": 8, "num_experts_per_tok": 3,
                           "n_group": 4, "topk_group": 2)"),
                    {{"moe_intermediate_size", "20"},
                     {"n_routed_experts", "12"},
                     {"num_experts_per_tok", "2"},
                     {"n_shared_experts", "2"},
                     {"n_group", "2"},
                     {"topk_group", "3"},
                     {"routed_scaling_factor", "2.0"},
                     {"norm_topk_prob", "false"},
                     {"first_k_dense_replace", "2"},
                     {"use_qk_norm", "true"},
                     {"attention_bias", "true"},
                     {"partial_rotary_factor", "1.0"}});
}

TEST(GptOss, EveryFieldChangesTheLogits) {
  const std::string own = R"("head_dim": 16, "sliding_window": 20, "swiglu_limit": 0.5,
      "num_local_experts": 5, "num_experts_per_tok": 2, "rope_theta": 1000.0,
      "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                       "truncate": false, "original_max_position_embeddings": 32})";
  ExpectFieldsCount(Config("GptOssForCausalLM", own),
                    {{"head_dim", "12"},
                     {"sliding_window", "19"},
                     {"sliding_window", "null"},
                     {"layer_types", R"(["full_attention", "sliding_attention", "full_attention",
                                         "full_attention"])"},
                     {"swiglu_limit", "0.6"},
                     {"swiglu_alpha", "1.5"},
                     {"num_local_experts", "4"},
                     {"num_experts_per_tok", "3"},
                     {"intermediate_size", "48"},
                     {"attention_bias", "false"},
                     {"tie_word_embeddings", "true"},
                     {"rope_theta", "2000.0"},
                     {"rope_scaling.factor", "4.0"},
                     {"rope_scaling.truncate", "true"},
                     {"rope_scaling.original_max_position_embeddings", "64"}});
}

// What the reference passes over, or fails at, for these families.
TEST(Families, AFieldThatTheReferenceDoesNotUseIsRefused) {
  const std::string gemma = R"("head_dim": 8, "hidden_activation": "gelu_pytorch_tanh", )";
  const std::string gpt_oss = R"("head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
      "rope_scaling": {"rope_type": "default"}, )";
  const std::pair<const char*, std::string> bases[] = {
      {"MistralForCausalLM", ""},
      {"MixtralForCausalLM", R"("num_local_experts": 4, "num_experts_per_tok": 2, )"},
      {"Qwen2ForCausalLM", ""},
      {"Qwen3ForCausalLM", ""},
      {"SmolLM3ForCausalLM", ""},
      {"Olmo2ForCausalLM", ""},
      {"Gemma2ForCausalLM", gemma},
      {"Gemma3ForCausalLM", gemma},
      {"GptOssForCausalLM", gpt_oss}};
  for (const auto& [architecture, own] : bases) {
    const std::string part = own + R"("partial_rotary_factor": )";
    EXPECT_THAT(ErrorOf(Config(architecture, part + "0.5")),
                HasSubstr("partial_rotary_factor: is 0.5"))
        << architecture;
    EXPECT_EQ(ErrorOf(Config(architecture, part + "1.0")), "") << architecture;
  }
  EXPECT_THAT(ErrorOf(Config("Gemma3ForCausalLM", gemma + R"("attn_logit_softcapping": 50.0)")),
              HasSubstr("attn_logit_softcapping: is not supported"));
  EXPECT_EQ(ErrorOf(Config("Gemma3ForCausalLM", gemma + R"("attn_logit_softcapping": null)")), "");
  EXPECT_THAT(ErrorOf(Config("LlamaForCausalLM", R"("hidden_activation": "silu")")),
              HasSubstr("hidden_act: is missing"));
}

TEST(Families, TwoNamesOfAFieldMustAgree) {
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

TEST(Glm4Moe, GroupsTooSmallToChooseFromAreRefused) {
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

TEST(Mpt, EveryFieldChangesTheLogits) {
  const std::string config = R"({"architectures": ["MptForCausalLM"], "vocab_size": 50,
    "d_model": 24, "n_heads": 6, "n_layers": 3, "max_seq_len": 256, "expansion_ratio": 4,
    "layer_norm_epsilon": 1e-5, "no_bias": true, "attn_config": {"alibi": true, "qk_ln": false}})";
  ExpectFieldsCount(config, {{"n_heads", "4"},
                             {"n_layers", "2"},
                             {"expansion_ratio", "3"},
                             {"layer_norm_epsilon", "1e-2"},
                             {"tie_word_embeddings", "false"},
                             {"attn_config.clip_qkv", "0.5"},
                             {"attn_config.softmax_scale", "0.3"}});
}

// What the reference ignores, but the checkpoints' own code does not.
TEST(Mpt, RefusesWhatItWouldComputeWrongly) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const std::string start = R"({"architectures": ["MptForCausalLM"], "vocab_size": 50,
    "d_model": 24, "n_heads": 6, "n_layers": 1, "max_seq_len": 256, )";
  for (const char* field :
       {R"("attn_config": {"alibi": false}})", R"("attn_config": {"qk_ln": true}})",
        R"("attn_config": {"prefix_lm": true}})",
        R"("attn_config": {"attn_type": "multiquery_attention"}})",
        R"("attn_config": {"rope": true}})", R"("attn_config": {"alibi_bias_max": 16}})",
        R"("no_bias": false})", R"("logit_scale": "inv_sqrt_d_model"})",
        R"("norm_type": "rmsnorm"})"}) {
    EXPECT_FALSE(LoadModel(MakeRandomCheckpoint(start + field), *ops).ok()) << field;
  }
  for (const char* field :
       {R"("logit_scale": null})", R"("attn_config": {"alibi_bias_max": 8.0}})"}) {
    EXPECT_TRUE(LoadModel(MakeRandomCheckpoint(start + field), *ops).ok()) << field;
  }
}

}  // namespace
}  // namespace tokamak::testing
