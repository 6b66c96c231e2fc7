// Which optional features of a backend each family needs (ops/capabilities.h).
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/testing/golden.h"
#include "models/testing/harness.h"
#include "models/testing/images.h"
#include "ops/count/count_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace tokamak::testing {
namespace {

using enum Capability;

struct Case {
  const char* model;  // a file or directory in tests/golden
  Capabilities needs = {};
};

constexpr Case kCases[] = {
    {"hf/bert_64", {kNonCausal, kLayerNorm, kActivate, kConvert}},
    {"hf/bert_odd", {kNonCausal, kLayerNorm, kActivate, kGelu, kConvert}},
    {"hf/deepseek_v2_odd", {kMla, kMoe, kCombine, kConvert}},
    {"hf/deepseek_v3_odd", {kMla, kMoe, kCombine, kConvert}},
    {"hf/ernie4_5_odd"},
    {"hf/exaone4_odd", {kAddResidual, kConvert}},
    {"hf/gemma2_odd", {kAttentionSoftcap, kLogitSoftcap, kEmbeddingScale}},
    {"hf/gemma3_odd", kEmbeddingScale},
    {"hf/gemma3_vision_odd",
     {kNonCausal, kLayerNorm, kAddResidual, kActivate, kConvert, kEmbeddingScale}},
    {"hf/glm4_moe_odd", {kMoe, kCombine, kConvert}},
    {"hf/glm4_odd"},
    {"hf/glm4v_moe_odd", {kMoe, kCombine, kNonCausal, kLayerNorm, kActivate, kGelu, kConvert}},
    {"hf/glm4v_odd", {kCombine, kNonCausal, kLayerNorm, kActivate, kGelu, kConvert}},
    {"hf/gpt_oss_odd", {kMoe, kCombine, kSinks, kClampedSwiglu, kConvert}},
    {"hf/llava_64", {kNonCausal, kLayerNorm, kAddResidual, kActivate, kQuickGelu, kConvert}},
    {"hf/llava_next_odd",
     {kNonCausal, kLayerNorm, kAddResidual, kActivate, kGelu, kQuickGelu, kConvert}},
    {"hf/llava_odd",
     {kNonCausal, kLayerNorm, kAddResidual, kActivate, kGelu, kQuickGelu, kConvert}},
    {"hf/llava_siglip", {kNonCausal, kLayerNorm, kAddResidual, kActivate, kGelu, kConvert}},
    {"hf/minicpm_v_odd",
     {kNonCausal, kCombine, kLayerNorm, kAddResidual, kActivate, kGelu, kConvert}},
    {"hf/mistral3_64", {kNonCausal, kActivate, kGelu, kConvert}},
    {"hf/mistral3_odd", {kNonCausal, kActivate, kConvert}},
    {"hf/mistral_odd"},
    {"hf/mixtral_odd", {kMoe, kCombine, kConvert}},
    {"hf/mpt_128", {kAlibi, kLayerNorm, kActivate, kGelu}},
    {"hf/mpt_odd", {kAlibi, kClamp, kLayerNorm, kActivate, kGelu}},
    {"hf/olmo2_odd", {kAddResidual, kConvert}},
    {"hf/phi3_odd"},
    {"hf/pixtral_odd", {kNonCausal, kAddResidual, kActivate, kGelu, kConvert}},
    {"hf/qwen2_5_vl_odd", {kNonCausal, kActivate, kGelu, kConvert}},
    {"hf/qwen2_moe_odd", {kMoe, kCombine, kConvert}},
    {"hf/qwen2_odd"},
    {"hf/qwen2_vl_odd", {kNonCausal, kLayerNorm, kActivate, kGelu, kQuickGelu, kConvert}},
    {"hf/qwen3_vl_odd",
     {kNonCausal, kCombine, kLayerNorm, kAddResidual, kActivate, kGelu, kConvert}},
    {"hf/qwen3_vl_moe_odd",
     {kNonCausal, kMoe, kCombine, kLayerNorm, kAddResidual, kActivate, kGelu, kConvert}},
    {"hf/qwen35_odd", {kGatedDelta, kGateOutput}},
    {"hf/qwen35_vl_odd",
     {kNonCausal, kLayerNorm, kActivate, kGelu, kCombine, kConvert, kGatedDelta, kGateOutput}},
    {"hf/smollm3_odd"},
    {"llama_odd.gguf"},
    {"qwen3_moe_odd.gguf", {kMoe, kCombine, kConvert}},
    {"qwen3_odd.gguf"},
};

class CapabilitiesTest : public ::testing::TestWithParam<Case> {
 protected:
  LoadOptions Options() const {
    return {.task = IsEncoder(checkpoint_.architecture) ? Task::kEmbed : Task::kGenerate};
  }
  // The error of a backend with these features; empty if there is none.
  std::string ErrorWith(Capabilities features) const {
    const auto ops = MakeCountOps(&StoredBytes, {.name = "test", .capabilities = features});
    const Status status = LoadModel(checkpoint_, *ops, Options()).status();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnimplemented);
    return std::string(status.message());
  }
  std::string Error(Capabilities missing) const {
    if (missing.empty()) return "";
    return checkpoint_.source + ": needs " + Describe(missing) +
           ", which the test backend does not have";
  }

  const Checkpoint checkpoint_ = OpenCheckpoint(GoldenPath(GetParam().model)).value();
};
INSTANTIATE_TEST_SUITE_P(Models, CapabilitiesTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) {
                           std::string name = info.param.model;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

TEST_P(CapabilitiesTest, OneErrorNamesAllThatTheBackendLacks) {
  EXPECT_EQ(ErrorWith({}), Error(GetParam().needs));
  EXPECT_EQ(ErrorWith(GetParam().needs), "");
}

TEST_P(CapabilitiesTest, EachNeededFeatureIsRequired) {
  for (int i = 0; i < kNumCapabilities; ++i) {
    const Capabilities feature = static_cast<Capability>(i);
    const bool needed = GetParam().needs.Has(feature);
    EXPECT_EQ(ErrorWith(Capabilities::All() - feature), Error(needed ? feature : Capabilities()));
  }
}

// docs/models.md says that all architectures run on GPUs.
TEST_P(CapabilitiesTest, TheCudaBackendHasAllThatIsNeeded) {
  EXPECT_EQ(ErrorWith(kCudaCapabilities), "");
}

// A step runs exactly the optional operations that loading required, if activations are rounded.
TEST_P(CapabilitiesTest, StepsRunTheOperationsThatAreNeeded) {
  const auto activation = [](const WeightSpec& spec) {
    return spec.use == WeightUse::kRouter ? DType::kF32 : DType::kBF16;
  };
  const auto count = MakeCountOps(&StoredBytes, {.activation = activation});
  const auto model = LoadModel(checkpoint_, *count, Options());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  Harness harness(**model, *count, {.hidden_states = IsEncoder(checkpoint_.architecture)});
  harness.Run(std::vector<int32_t>(10, 5), 10);
  if ((*model)->image_encoder() != nullptr) {
    (void)WithImages({}, **model, *count, ReadTinyGolden(GetParam().model));
  }
  for (const auto& [kind, capability] : {std::pair(OpKind::kAddResidual, kAddResidual),
                                         {OpKind::kSoftcap, kLogitSoftcap},
                                         {OpKind::kAddLayerNorm, kLayerNorm},
                                         {OpKind::kClamp, kClamp},
                                         {OpKind::kActivate, kActivate},
                                         {OpKind::kConvert, kConvert},
                                         {OpKind::kRouteTokens, kMoe},
                                         {OpKind::kGroupedLinear, kMoe},
                                         {OpKind::kCombineExperts, kCombine},
                                         {OpKind::kHeadLinear, kMla},
                                         {OpKind::kCausalConv, kGatedDelta},
                                         {OpKind::kGatedDelta, kGatedDelta},
                                         {OpKind::kGateOutput, kGateOutput}}) {
    EXPECT_EQ(count->counts()[kind].calls > 0, GetParam().needs.Has(capability)) << Name(kind);
  }
}

TEST(Capabilities, EachFamilyIsTested) {
  std::set<std::string> tested;
  for (const Case& c : kCases) {
    tested.insert(OpenCheckpoint(GoldenPath(c.model)).value().architecture);
  }
  // Other names of families that are tested.
  tested.insert({"Ernie4_5_ForCausalLM", "MPTForCausalLM"});
  for (const KnownModel& known : KnownModels()) {
    EXPECT_TRUE(tested.contains(std::string(known.architecture))) << known.architecture;
  }
}

TEST(Capabilities, AreDescribedAsAList) {
  EXPECT_EQ(Describe({}), "");
  EXPECT_EQ(Describe(kMoe), "MoE layers");
  EXPECT_EQ(Describe({kSinks, kMoe}), "MoE layers and attention sinks");
  EXPECT_EQ(Describe({kLogitSoftcap, kMoe, kConvert}),
            "MoE layers, softcaps of logits and conversion of activations");
}

}  // namespace
}  // namespace tokamak::testing
