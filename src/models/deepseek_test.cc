// DeepSeek-V2 and V3: every configuration field has an effect, every form of attention computes the
// same, and published configurations have the sizes that their authors state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/harness.h"
#include "models/testing/mutations.h"
#include "nn/testing/random_tensors.h"
#include "ops/count/count_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "weights/checkpoint.h"

namespace tokamak::testing {
namespace {

using ::testing::HasSubstr;

std::string Config(const std::string& architecture, const std::string& own) {
  return R"({"architectures": [")" + architecture + R"("], "hidden_act": "silu",
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, "first_k_dense_replace": 1, "moe_intermediate_size": 16,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
    "q_lora_rank": 18, "kv_lora_rank": 14, "qk_rope_head_dim": 6, "qk_nope_head_dim": 5,
    "v_head_dim": 7, "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 0.707,
    "original_max_position_embeddings": 64, "mscale_all_dim": 1.0}, )" +
         own + "}";
}

// YaRN makes a factor of mscale and another of mscale_all_dim. Scores are multiplied by the square
// of the second one, cosines and sines by the first divided by the second.
TEST(DeepseekV3, EqualMscalesScaleOnlyTheScores) {
  const std::string yarn = Config("DeepseekV3ForCausalLM", R"("rope_theta": 1e4)");
  auto with = [&](const std::string& mscale) {
    std::string config = yarn;
    config.replace(config.find("\"mscale\": 0.707"), 15, "\"mscale\": " + mscale);
    return LastLogits(config);
  };
  EXPECT_NE(with("1.0"), with("0.5"));
}

std::string ErrorOf(const std::string& config) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto model = LoadModel(MakeRandomCheckpoint(config), *ops);
  return model.ok() ? "" : model.status().ToString();
}

TEST(Deepseek, RefusesUnsupportedOptionsByName) {
  const auto v2 = [](const std::string& own) { return Config("DeepseekV2ForCausalLM", own); };
  const auto v3 = [](const std::string& own) { return Config("DeepseekV3ForCausalLM", own); };
  EXPECT_THAT(ErrorOf(v2(R"("topk_method": "noaux_tc")")), HasSubstr("topk_method"));
  EXPECT_THAT(ErrorOf(v3(R"("index_n_heads": 8)")), HasSubstr("index_n_heads"));
  EXPECT_EQ(ErrorOf(v3(R"("head_dim": 6, "qk_head_dim": 11)")), "");
}

// Published configurations, and the sizes of the models that transformers builds from them.
struct Published {
  const char* name;
  const char* config;
  int64_t parameters;
  int64_t cache_elements;  // per position
};

constexpr Published kPublished[] = {
    {"DeepSeek-V2-Lite", R"({"architectures": ["DeepseekV2ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "aux_loss_alpha": 0.001,
      "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
      "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1,
      "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
      "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
        "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"},
      "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax",
      "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
      "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400})",
     15706484224, 27 * 576},
    {"DeepSeek-V3", R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
      "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "model_type": "deepseek_v3",
      "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
      "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
      "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "quantization_config": {"activation_scheme": "dynamic",
        "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]},
      "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
        "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
      "scoring_func": "sigmoid", "tie_word_embeddings": false, "topk_group": 4,
      "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280})",
     671026419200, 61 * 576},
    {"Kimi-K2", R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "auto_map": {}, "aux_loss_alpha": 0.001, "ep_size": 1,
      "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 7168,
      "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 131072,
      "model_type": "kimi_k2", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 1,
      "n_routed_experts": 384, "n_shared_experts": 1, "norm_topk_prob": true,
      "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 61,
      "num_key_value_heads": 64, "num_nextn_predict_layers": 0, "pretraining_tp": 1,
      "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3",
        "quant_method": "fp8", "weight_block_size": [128, 128]},
      "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 1.0, "beta_slow": 1.0,
        "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 50000.0,
      "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "seq_aux": true,
      "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc",
      "v_head_dim": 128, "vocab_size": 163840})",
     1026408232448, 61 * 576},
};

TEST(Deepseek, PublishedConfigurationsHaveTheirSizes) {
  for (const Published& published : kPublished) {
    SCOPED_TRACE(published.name);
    const auto ops = MakeCountOps();
    LoadOptions options;
    options.max_context = 4096;
    const auto config = ParseConfigJson(published.config, published.name);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    const auto checkpoint = MakeDummyCheckpoint(*config, published.name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    const auto model = LoadModel(*checkpoint, *ops, options);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    const ModelSpec& spec = (*model)->spec();
    EXPECT_EQ(spec.num_parameters, published.parameters);
    int64_t elements = 0;
    for (const nn::KvLayerSpec& layer : spec.cache.layers) {
      elements += layer.num_kv_heads * (layer.head_dim + layer.StoredValueDim());
    }
    EXPECT_EQ(elements, published.cache_elements);
  }
}

// The head sizes and ranks of DeepSeek-V2-Lite.
constexpr const char* kWide = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "hidden_act": "silu", "vocab_size": 131,
  "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
  "rms_norm_eps": 1e-5, "max_position_embeddings": 1024, "rope_theta": 1000.0,
  "q_lora_rank": null, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
  "v_head_dim": 128, "first_k_dense_replace": 2, "n_routed_experts": 8,
  "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 64})";

// A prompt's beginning, its rest, which is long enough to decompress, beside one of few tokens, and
// steps of one token.
std::vector<Harness::Logits> RunForm(Ops& ops, MlaForm form, DType kv_dtype = DType::kF32) {
  LoadOptions options;
  options.mla_form = form;
  const auto model = LoadModel(MakeRandomCheckpoint(kWide, 5, DType::kBF16), ops, options);
  CHECK_MSG(model.ok(), model.status().ToString());
  Harness harness(**model, ops, {.num_blocks = 40, .kv_dtype = kv_dtype});
  std::vector<int32_t> tokens(300);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 131);
  const int a = harness.AddSequence(), b = harness.AddSequence();
  auto logits = harness.Forward({{a, {tokens.begin(), tokens.begin() + 60}, 5}});
  const std::vector<Harness::Row> rest = {{b, {tokens.begin(), tokens.begin() + 20}, 5},
                                          {a, {tokens.begin() + 60, tokens.begin() + 250}, 190}};
  for (auto& row : harness.Forward(rest)) logits.push_back(std::move(row));
  for (size_t i = 0; i < 10; ++i) {
    for (auto& row : harness.Forward({{a, {tokens[250 + i]}, 1}, {b, {tokens[20 + i]}, 1}})) {
      logits.push_back(std::move(row));
    }
  }
  return logits;
}

double LargestDifference(const std::vector<Harness::Logits>& a,
                         const std::vector<Harness::Logits>& b) {
  CHECK(a.size() == b.size());
  double worst = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) {
      const double error = std::abs(double{a[t][i]} - b[t][i]);
      worst = error <= worst ? worst : error;  // NaN counts as the worst
    }
  }
  return worst;
}

TEST(Deepseek, AllFormsOfAttentionComputeTheSame) {
  std::vector<std::string> backends = PreciseBackendNames();
  for (const std::string& backend : {backends.front(), backends.back()}) {
    const std::unique_ptr<Ops> ops = MakeBackend(backend);
    const auto expected = RunForm(*ops, MlaForm::kStandard);
    for (const auto form : {MlaForm::kLatent, MlaForm::kAbsorbed, MlaForm::kAuto}) {
      const double worst = LargestDifference(RunForm(*ops, form), expected);
      std::printf("%s, form %d: off by %g\n", backend.c_str(), static_cast<int>(form), worst);
      EXPECT_LT(worst, 5e-5) << backend << ", form " << static_cast<int>(form);
    }
  }
}

// On the CUDA backend, long prompts are decompressed for tensor cores. That is as exact as the
// absorbed form, and not that form's bits.
TEST(CudaDeepseek, DecompressedLatentsComputeTheSame) {
  Result<std::unique_ptr<Ops>> ops = MakeCudaOps({.kernels = KernelChoice::kNew});
  if (!ops.ok()) GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
  if (!(*ops)->capabilities().Has(Capability::kLatentScratch)) {
    GTEST_SKIP() << (*ops)->name() << " does not decompress for tensor cores";
  }
  const std::unique_ptr<Ops> reference = MakeBackend("reference");
  const auto expected = RunForm(*reference, MlaForm::kStandard);
  const auto absorbed = RunForm(**ops, MlaForm::kAbsorbed, DType::kBF16);
  const auto decompressed = RunForm(**ops, MlaForm::kAuto, DType::kBF16);
  const double limit = LargestDifference(absorbed, expected);
  const double worst = LargestDifference(decompressed, expected);
  std::printf("absorbed off by %g, decompressed by %g\n", limit, worst);
  EXPECT_LT(worst, 2 * limit);
  EXPECT_GT(LargestDifference(decompressed, absorbed), 0);
}

// GGUF stores the weights of keys and values separately, and those of keys transposed.
TEST(Deepseek, AllFormsReadTheSameFromGguf) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const std::vector<int32_t> tokens = ReadTinyGolden("hf/deepseek_v3_256").tokens;
  for (const auto form :
       {MlaForm::kStandard, MlaForm::kLatent, MlaForm::kAbsorbed, MlaForm::kAuto}) {
    const auto run = [&](const std::string& name) {
      LoadOptions options;
      options.mla_form = form;
      const std::unique_ptr<Model> model = LoadOrDie(TinyModelPath(name), *ops, options);
      return Harness(*model, *ops).Run(tokens, static_cast<int32_t>(tokens.size()));
    };
    EXPECT_EQ(run("gguf/deepseek_v3_256"), run("hf/deepseek_v3_256"))
        << "form " << static_cast<int>(form);
  }
}

// A small model with dense layers and DeepSeek's sizes of latents, so that kernels for those run.
std::string ConfigOfLatents() {
  return R"({"architectures": ["DeepseekV2ForCausalLM"], "hidden_act": "silu",
    "vocab_size": 50, "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 3, "num_key_value_heads": 3, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, "first_k_dense_replace": 2, "moe_intermediate_size": 16,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 1, "topk_group": 1,
    "topk_method": "greedy", "q_lora_rank": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 16, "v_head_dim": 16, "rope_theta": 10000})";
}

// The form of attention on the CUDA backend, and its path: default with the newest kernels, plain
// with the oldest, or precise.
using CudaForm = std::tuple<MlaForm, const char*>;
class CudaLatentTest : public ::testing::TestWithParam<CudaForm> {};
std::string FormName(const ::testing::TestParamInfo<CudaForm>& info) {
  constexpr const char* kNames[] = {"standard", "latent", "absorbed", "auto"};
  return std::string(kNames[static_cast<int>(std::get<0>(info.param))]) + "_" +
         std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(Forms, CudaLatentTest,
                         ::testing::Combine(::testing::Values(MlaForm::kAbsorbed, MlaForm::kLatent,
                                                              MlaForm::kStandard, MlaForm::kAuto),
                                            ::testing::Values("default", "plain", "precise")),
                         FormName);

TEST_P(CudaLatentTest, LogitsAreThoseOfTheReferenceAndTheBatchChangesNoBit) {
  const auto [form, path] = GetParam();
  const std::string kernels = path;
  const bool precise = kernels == "precise";
  Result<std::unique_ptr<Ops>> ops =
      MakeCudaOps({.precise = precise,
                   .kernels = kernels == "plain" ? KernelChoice::kPlain : KernelChoice::kNew});
  if (!ops.ok()) GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
  const Checkpoint checkpoint = MakeRandomCheckpoint(ConfigOfLatents());
  LoadOptions options;
  options.mla_form = form;
  const auto load = [&](Ops& backend) {
    Result<std::unique_ptr<Model>> model = LoadModel(checkpoint, backend, options);
    CHECK_MSG(model.ok(), model.status().ToString());
    return *std::move(model);
  };
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 75; ++i) tokens.push_back(i * 7 % 50);
  const auto length = static_cast<int32_t>(tokens.size());
  const std::unique_ptr<Ops> reference = MakeBackend("reference");
  const std::unique_ptr<Model> expected_model = load(*reference), model = load(**ops);
  const auto expected = Harness(*expected_model, *reference).Run(tokens, length);
  const DType kv_dtype = precise ? DType::kF32 : DType::kBF16;
  Harness whole(*model, **ops, {.kv_dtype = kv_dtype});
  const auto actual = whole.Run(tokens, length);
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0, largest = 0;
  for (size_t t = 0; t < expected.size(); ++t) {
    for (size_t i = 0; i < expected[t].size(); ++i) {
      const double error = std::abs(double{actual[t][i]} - expected[t][i]);
      worst = error <= worst ? worst : error;  // NaN counts as the worst
      largest = std::max(largest, std::abs(double{expected[t][i]}));
    }
  }
  std::printf("off by %g, logits are up to %g\n", worst, largest);
  EXPECT_LT(worst, precise ? 1e-4 : 0.06 * largest);

  if (form == MlaForm::kAuto) return;  // depends on the chunks of a prompt
  Harness together(*model, **ops, {.kv_dtype = kv_dtype, .seed = 3});
  std::vector<Harness::Row> rows;
  for (const int32_t count : {1, 17, 2, 70}) {
    rows.push_back({together.AddSequence(length), {tokens.begin(), tokens.begin() + count}, 1});
  }
  const auto in_company = together.Forward(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(in_company[i], actual[rows[i].tokens.size() - 1]) << "sequence " << i;
  }
}

}  // namespace
}  // namespace tokamak::testing
