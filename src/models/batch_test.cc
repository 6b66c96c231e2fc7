// A sequence's logits do not depend on its chunks or on the rest of the batch: bit for bit, on
// every ISA.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/harness.h"
#include "nn/testing/random_tensors.h"

namespace tokamak::testing {
namespace {

// Grouped heads, biases, and sizes that fill no vector.
constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
  "vocab_size": 131, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
  "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 1024, "rope_theta": 1000.0, "attention_bias": true
})";

// Experts in all layers except one; each token uses 3 of 11.
constexpr const char* kMoeConfig = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "hidden_act": "silu",
  "vocab_size": 131, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
  "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 1024, "rope_theta": 1000.0, "moe_intermediate_size": 64,
  "num_experts": 11, "num_experts_per_tok": 3, "norm_topk_prob": true, "mlp_only_layers": [1]
})";

// Latent attention without experts: a different choice of experts would hide rounding differences.
constexpr const char* kMlaConfig = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "hidden_act": "silu",
  "vocab_size": 131, "hidden_size": 96, "intermediate_size": 96, "num_hidden_layers": 2,
  "num_attention_heads": 4, "rms_norm_eps": 1e-5, "max_position_embeddings": 1024,
  "rope_theta": 1000.0, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16,
  "qk_nope_head_dim": 20, "v_head_dim": 24, "first_k_dense_replace": 2, "n_routed_experts": 8,
  "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 64
})";

// Gated delta nets, and attention with gates.
constexpr const char* kDeltaConfig = R"({
  "architectures": ["Qwen3_5ForCausalLM"], "hidden_act": "silu",
  "vocab_size": 131, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
  "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 20, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 1024, "full_attention_interval": 2, "linear_num_key_heads": 2,
  "linear_num_value_heads": 4, "linear_key_head_dim": 24, "linear_value_head_dim": 40,
  "rope_parameters": {"rope_theta": 1000.0, "partial_rotary_factor": 0.3,
                      "mrope_section": [1, 1, 1]}
})";

std::vector<int32_t> RandomTokens(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 131);
  return tokens;
}

struct Case {
  std::string backend;
  DType weights;
  DType cache;
  const char* config = kConfig;
  MlaForm mla = MlaForm::kAbsorbed;

  bool has_moe() const { return config == kMoeConfig; }
  bool precise() const { return backend == "reference" || backend.ends_with("precise"); }
  std::string what() const {
    if (config == kMlaConfig) return "_mla_" + std::to_string(static_cast<int>(mla));
    return has_moe() ? "_experts" : config == kDeltaConfig ? "_delta" : "";
  }
};

std::unique_ptr<Model> MakeModel(Ops& ops, const Case& test) {
  LoadOptions options;
  options.mla_form = test.mla;
  Result<std::unique_ptr<Model>> model =
      LoadModel(MakeRandomCheckpoint(test.config, 3, test.weights), ops, options);
  CHECK_MSG(model.ok(), model.status().ToString());
  return *std::move(model);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& backend : PreciseBackendNames()) {
    cases.push_back({backend, DType::kF32, DType::kF32});
    cases.push_back({backend, DType::kQ4_1, DType::kF16});
    cases.push_back({backend, DType::kQ8_0, DType::kBF16});
    cases.push_back({backend, DType::kF32, DType::kF32, kMoeConfig});
    cases.push_back({backend, DType::kF32, DType::kF32, kMlaConfig});
    cases.push_back({backend, DType::kF32, DType::kF32, kDeltaConfig});
    cases.push_back({backend, DType::kF32, DType::kF8E4M3});
    cases.push_back({backend, DType::kF32, DType::kF8E4M3, kMlaConfig});
  }
  for (const MlaForm form : {MlaForm::kStandard, MlaForm::kLatent}) {
    cases.push_back({PreciseBackendNames().back(), DType::kBF16, DType::kF16, kMlaConfig, form});
  }
  for (const std::string& backend : BackendNames()) {
    if (backend == "reference" || backend == "cpu/baseline") continue;  // already precise
    cases.push_back({backend, DType::kQ4_1, DType::kF16});
    cases.push_back({backend, DType::kQ8_0, DType::kBF16});
    cases.push_back({backend, DType::kQ4_1, DType::kF16, kMoeConfig});
    cases.push_back({backend, DType::kQ4_1, DType::kF16, kMlaConfig});
    cases.push_back({backend, DType::kQ4_1, DType::kF16, kDeltaConfig});
  }
  return cases;
}

class BatchTest : public ::testing::TestWithParam<Case> {
 protected:
  Harness MakeHarness(uint64_t seed = 1) {
    return Harness(*model_, *ops_, {.num_blocks = 300, .kv_dtype = GetParam().cache, .seed = seed});
  }

  std::unique_ptr<Ops> ops_ = MakeBackend(GetParam().backend, 2);
  std::unique_ptr<Model> model_ = MakeModel(*ops_, GetParam());
};

TEST_P(BatchTest, ChunkedPrefillEqualsWholePrefill) {
  const std::vector<int32_t> tokens = RandomTokens(1, 150);
  Harness whole = MakeHarness();
  const auto expected = whole.Run(tokens, 150);
  for (const int32_t chunk : {1, 7, 16, 64, 149}) {
    Harness chunked = MakeHarness(static_cast<uint64_t>(chunk));
    EXPECT_EQ(chunked.Run(tokens, 150, chunk), expected) << "chunks of " << chunk;
  }
}

TEST_P(BatchTest, DecodeEqualsPrefillOfTheSameTokens) {
  const std::vector<int32_t> tokens = RandomTokens(2, 90);
  Harness prefill = MakeHarness();
  const auto expected = prefill.Run(tokens, 50);
  Harness decode = MakeHarness(2);
  const int sequence = decode.AddSequence();
  decode.Forward({{sequence, {tokens.begin(), tokens.begin() + 40}, 0}});
  for (size_t i = 40; i < 90; ++i) {
    EXPECT_EQ(decode.Forward({{sequence, {tokens[i]}, 1}}).front(), expected[i - 40]) << i;
  }
}

TEST_P(BatchTest, RaggedBatchEqualsEachSequenceAlone) {
  const int lengths[] = {1, 70, 17, 128, 33, 2, 64};
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<Harness::Logits>> alone;
  for (size_t i = 0; i < 7; ++i) {
    tokens.push_back(RandomTokens(10 + i, static_cast<size_t>(lengths[i])));
    Harness harness = MakeHarness();
    alone.push_back(harness.Run(tokens[i], lengths[i]));
  }

  // Each step takes a random number of tokens from each sequence that has any left: prefill,
  // extension and decode in one batch.
  std::mt19937_64 random(99);
  Harness harness = MakeHarness(5);
  std::vector<size_t> done(7, 0);
  for (int i = 0; i < 7; ++i) harness.AddSequence();
  for (int step = 0; std::any_of(done.begin(), done.end(),
                                 [&](const size_t& d) {
                                   return d < tokens[static_cast<size_t>(&d - done.data())].size();
                                 });
       ++step) {
    std::vector<Harness::Row> rows;
    for (size_t i = 0; i < 7; ++i) {
      const size_t left = tokens[i].size() - done[i];
      const size_t count = std::min<size_t>(left, random() % 3 == 0 ? 1 : random() % 40);
      if (count == 0) continue;
      const auto begin = tokens[i].begin() + static_cast<int64_t>(done[i]);
      rows.push_back({static_cast<int>(i),
                      {begin, begin + static_cast<int64_t>(count)},
                      static_cast<int32_t>(count)});
    }
    std::shuffle(rows.begin(), rows.end(), random);
    const auto logits = harness.Forward(rows);
    size_t at = 0;
    for (const Harness::Row& row : rows) {
      const auto i = static_cast<size_t>(row.sequence);
      for (size_t t = 0; t < row.tokens.size(); ++t) {
        EXPECT_EQ(logits[at++], alone[i][done[i]++]) << "sequence " << i << ", step " << step;
      }
    }
  }
}

TEST_P(BatchTest, NumberOfThreadsChangesNothing) {
  const std::vector<int32_t> tokens = RandomTokens(4, 100);
  Harness two = MakeHarness();
  const auto expected = two.Run(tokens, 100, 30);
  const std::unique_ptr<Ops> ops = MakeBackend(GetParam().backend, 1);
  const std::unique_ptr<Model> model = MakeModel(*ops, GetParam());
  Harness one(*model, *ops, {.num_blocks = 300, .kv_dtype = GetParam().cache});
  EXPECT_EQ(one.Run(tokens, 100, 30), expected);
}

TEST_P(BatchTest, BackendEqualsTheReference) {
  if (GetParam().has_moe() && !GetParam().precise()) {
    GTEST_SKIP() << "rounded activations choose other experts where scores are close";
  }
  const std::vector<int32_t> tokens = RandomTokens(6, 200);
  Harness harness = MakeHarness();
  const auto got = harness.Run(tokens, 200);
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const std::unique_ptr<Model> model = MakeModel(*ops, GetParam());
  Harness reference(*model, *ops, {.num_blocks = 300, .kv_dtype = GetParam().cache});
  const auto expected = reference.Run(tokens, 200);
  double worst = 0, squares = 0, difference_squares = 0;
  for (size_t t = 0; t < got.size(); ++t) {
    for (size_t i = 0; i < got[t].size(); ++i) {
      ASSERT_FALSE(std::isnan(got[t][i]));
      const double difference = double{got[t][i]} - expected[t][i];
      worst = std::max(worst, std::abs(difference));
      squares += double{expected[t][i]} * expected[t][i];
      difference_squares += difference * difference;
    }
  }
  if (!GetParam().precise()) {
    // Int8 rounds by up to 1 / 254 of the largest of 32 values: about 1% of the root mean square.
    // Several roundings in a row add up to a few percent.
    const double off = std::sqrt(difference_squares / squares);
    std::printf("off by %g of the logits' root mean square, allowed 0.05\n", off);
    EXPECT_LT(off, 0.05);
    return;
  }
  // Logits are between 1 and 5 in size. A rounding cache type turns last-bit differences of a key
  // or value into whole steps of that type.
  const double bound = GetParam().cache == DType::kF32 ? 5e-5 : 5e-2;
  std::printf("worst difference %g, allowed %g\n", worst, bound);
  EXPECT_LT(worst, bound);
}

INSTANTIATE_TEST_SUITE_P(Backends, BatchTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.backend + "_" + std::string(Name(info.param.weights)) + "_" +
                     std::string(Name(info.param.cache)) + info.param.what();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace tokamak::testing
