// The Llama family: every configuration field has an effect, and every error in a checkpoint is
// named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/harness.h"
#include "models/testing/mutations.h"
#include "nn/testing/random_tensors.h"
#include "weights/testing/gguf_writer.h"

namespace tokamak::testing {
namespace {

using Json = nlohmann::ordered_json;

Json BaseConfig() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
    "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, "rope_theta": 1000.0, "tie_word_embeddings": false,
    "attention_bias": false, "mlp_bias": false
  })");
}

Json WithScaling(Json scaling) {
  Json config = BaseConfig();
  config["rope_scaling"] = std::move(scaling);
  return config;
}

Result<std::unique_ptr<Model>> Load(const Json& config, Ops& ops, const LoadOptions& options = {}) {
  return LoadModel(MakeRandomCheckpoint(config.dump(), 4), ops, options);
}

Harness::Logits Logits(const Json& config, const char* optional_tensor = nullptr,
                       const LoadOptions& options = {}) {
  return LastLogits(config.dump(), optional_tensor, options);
}

// Sets config[path] = value; a dot enters an object.
Json Mutate(Json config, const std::string& path, const Json& value) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    config[path] = value;
  } else {
    config[path.substr(0, dot)][path.substr(dot + 1)] = value;
  }
  return config;
}

// The reference keeps the base up to the maximum length, and increases it beyond.
TEST(Llama, DynamicRopeIsLimitedToItsOriginalContext) {
  const Json dynamic = WithScaling({{"rope_type", "dynamic"}, {"factor", 4.0}});
  EXPECT_EQ(Logits(dynamic), Logits(BaseConfig()));
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto model = Load(dynamic, *ops);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ((*model)->spec().max_context, 256);
  const auto refused = Load(dynamic, *ops, {.max_context = 257, .progress = {}});
  EXPECT_TRUE(std::string(refused.status().message())
                  .starts_with("the requested context of 257 positions is longer than the model's "
                               "256: its RoPE scaling, \"dynamic\""));
}

TEST(Llama, FieldsWithADefaultMayBeAbsent) {
  const auto expect_same = [](const char* field, const Json& base) {
    Json without = base;
    without.erase(field);
    EXPECT_EQ(Logits(without), Logits(base)) << field;
  };
  expect_same("tie_word_embeddings", BaseConfig());
  expect_same("attention_bias", BaseConfig());
  expect_same("mlp_bias", BaseConfig());
  expect_same("rope_theta", Mutate(BaseConfig(), "rope_theta", 10000.0));
  expect_same("head_dim", Mutate(BaseConfig(), "head_dim", 6));
  expect_same("num_key_value_heads", Mutate(BaseConfig(), "num_key_value_heads", 4));
}

TEST(Llama, UsesTheRopeFactorsOfTheCheckpoint) {
  EXPECT_NE(Logits(BaseConfig(), "rope_freqs.weight"), Logits(BaseConfig()));
}

TEST(Llama, AShorterContextChangesOnlyTheLimit) {
  EXPECT_EQ(Logits(BaseConfig(), nullptr, {.max_context = 100, .progress = {}}),
            Logits(BaseConfig()));
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto model = Load(BaseConfig(), *ops, {.max_context = 100, .progress = {}});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->spec().max_context, 100);
  const auto refused = Load(BaseConfig(), *ops, {.max_context = 257, .progress = {}});
  EXPECT_EQ(refused.status().message(),
            "the requested context of 257 positions is longer than the model's 256");
}

TEST(Llama, SpecDescribesTheModel) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  std::vector<int64_t> progress;
  const auto loaded =
      Load(BaseConfig(), *ops,
           {.max_context = 0, .progress = [&](int64_t bytes) { progress.push_back(bytes); }});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const ModelSpec& spec = (*loaded)->spec();
  EXPECT_EQ(spec.architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec.vocab_size, 50);
  EXPECT_EQ(spec.max_context, 256);
  // Embedding and output, final norm, and per layer: two norms, q, k, v, o, gate, up, down.
  const int64_t layer = 2 * 24 + 24 * (32 + 16 + 16 + 32) + 3 * 24 * 40;
  EXPECT_EQ(spec.num_parameters, 2 * 50 * 24 + 24 + 2 * layer);
  EXPECT_EQ(spec.weight_bytes, 4 * spec.num_parameters);  // the reference keeps float32
  ASSERT_EQ(spec.cache.groups.size(), 1u);
  EXPECT_EQ(spec.cache.groups[0].kind, CacheGroupKind::kFull);
  ASSERT_EQ(spec.cache.layers.size(), 2u);
  EXPECT_EQ(spec.cache.layers[1].num_heads, 4);
  EXPECT_EQ(spec.cache.layers[1].num_kv_heads, 2);
  EXPECT_EQ(spec.cache.layers[1].head_dim, 8);
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back(), 4 * spec.num_parameters);
}

TEST(Llama, RefusesBadConfigurationsByName) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"hidden_act", "relu", "config.json: hidden_act: \"relu\" is not supported"},
      {"hidden_size", nullptr, "config.json: hidden_size: is missing"},
      {"hidden_size", 1073741823,
       "config.json: hidden_size: expected an integer from 1 to 1048576"},
      {"vocab_size", 1073741824, "config.json: vocab_size: expected an integer from 1 to 16777216"},
      {"intermediate_size", 1073741824, "config.json: intermediate_size: expected an integer"},
      {"head_dim", 65536, "config.json: head_dim: expected an integer"},
      {"num_attention_heads", 0, "config.json: num_attention_heads: expected an integer"},
      {"num_key_value_heads", 3, "config.json: num_key_value_heads: does not divide"},
      {"rope_interleaved", true, "config.json: rope_interleaved: is true"},
      {"sliding_window", 4096, "sliding_window (4096)"},
      {"head_dim", 7, "7 rotary dimensions"},
      {"partial_rotary_factor", 0.5, "partial_rotary_factor: is 0.5, but this architecture is"},
  };
  for (const auto& [field, value, message] : cases) {
    const auto model = Load(Mutate(BaseConfig(), field, value), *ops);
    ASSERT_FALSE(model.ok()) << field;
    EXPECT_NE(model.status().ToString().find(message), std::string::npos)
        << model.status().ToString();
  }
  Json odd = Mutate(BaseConfig(), "num_attention_heads", 5);
  odd.erase("head_dim");
  odd["num_key_value_heads"] = 5;
  EXPECT_NE(Load(odd, *ops).status().ToString().find("does not divide hidden_size"),
            std::string::npos);
}

TEST(Registry, NamesAnUnknownArchitectureAndTheKnownOnes) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  const auto model = Load(Mutate(BaseConfig(), "architectures", {"MambaForCausalLM"}), *ops);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kUnimplemented);
  const std::string message(model.status().message());
  EXPECT_NE(message.find("architecture \"MambaForCausalLM\" is not supported; known: "),
            std::string::npos);
  EXPECT_NE(message.find(", LlamaForCausalLM, "), std::string::npos);
}

TEST(Registry, ModelTypeMustBelongToTheArchitecture) {
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  EXPECT_TRUE(Load(Mutate(BaseConfig(), "model_type", "llama"), *ops).ok());
  const auto message = [&](const Json& type) {
    return Load(Mutate(BaseConfig(), "model_type", type), *ops).status().ToString();
  };
  EXPECT_NE(message("qwen3").find("config.json: model_type: \"qwen3\" does not belong to "
                                  "LlamaForCausalLM, which \"architectures\" names; supported with "
                                  "it: \"llama\""),
            std::string::npos)
      << message("qwen3");
  EXPECT_NE(message("").find("model_type: \"\""), std::string::npos) << message("");
  EXPECT_NE(message(3).find("model_type: expected a string, got 3"), std::string::npos);
}

// Loads a one-layer GGUF file in which one tensor is dropped, added or of another shape.
Status LoadGguf(const std::string& changed, const Shape& shape) {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.Set("llama.context_length", 64);
  writer.Set("llama.embedding_length", 16);
  writer.Set("llama.block_count", 1);
  writer.Set("llama.feed_forward_length", 24);
  writer.Set("llama.attention.head_count", 4);
  writer.Set("llama.attention.head_count_kv", 2);
  writer.Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<std::pair<std::string, Shape>> tensors = {
      {"token_embd.weight", {30, 16}},   {"output_norm.weight", {16}},
      {"output.weight", {30, 16}},       {"blk.0.attn_norm.weight", {16}},
      {"blk.0.attn_q.weight", {16, 16}}, {"blk.0.attn_k.weight", {8, 16}},
      {"blk.0.attn_v.weight", {8, 16}},  {"blk.0.attn_output.weight", {16, 16}},
      {"blk.0.ffn_norm.weight", {16}},   {"blk.0.ffn_gate.weight", {24, 16}},
      {"blk.0.ffn_up.weight", {24, 16}}, {"blk.0.ffn_down.weight", {16, 24}}};
  const auto place = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const auto& tensor) { return tensor.first == changed; });
  if (place == tensors.end()) {
    if (!changed.empty()) tensors.push_back({changed, shape});
  } else if (shape.rank() == 0) {
    tensors.erase(place);
  } else {
    place->second = shape;
  }
  for (const auto& [name, dims] : tensors) {
    writer.AddTensor(name, DType::kF32, dims,
                     std::vector<float>(static_cast<size_t>(dims.elements()), 0.5f));
  }
  const std::string path = ::testing::TempDir() + "/llama_test.gguf";
  RETURN_IF_ERROR(writer.WriteFile(path));
  const std::unique_ptr<Ops> ops = MakeBackend("reference");
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
  return LoadModel(checkpoint, *ops).status();
}

TEST(Llama, NamesMissingUnusedAndMisshapenTensors) {
  const auto expect = [](const Status& status, std::initializer_list<const char*> parts) {
    ASSERT_FALSE(status.ok());
    for (const char* part : parts) {
      EXPECT_NE(status.ToString().find(part), std::string::npos)
          << status.ToString() << "\ndoes not contain: " << part;
    }
  };
  EXPECT_TRUE(LoadGguf("", {}).ok()) << LoadGguf("", {}).ToString();
  for (const char* name :
       {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_v.weight", "blk.0.attn_output.weight", "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"}) {
    expect(LoadGguf(name, {}), {"llama_test.gguf", name, "there is no tensor"});
  }
  expect(LoadGguf("blk.0.attn_k.weight", {16, 16}),
         {"blk.0.attn_k.weight", "[16, 16]", "[8, 16]", "num_kv_heads 2 × head_dim 4"});
  expect(LoadGguf("blk.0.ffn_down.weight", {16, 32}),
         {"blk.0.ffn_down.weight", "[16, 32]", "[16, 24]"});
  expect(LoadGguf("blk.0.ffn_norm.weight", {15}), {"blk.0.ffn_norm.weight", "[15]", "[16]"});
  expect(LoadGguf("blk.1.ffn_down.weight", {16, 24}), {"blk.1.ffn_down.weight"});
  expect(LoadGguf("blk.0.attn_sinks.weight", {4}), {"blk.0.attn_sinks.weight"});
  expect(LoadGguf("rope_freqs.weight", {3}), {"rope_freqs.weight", "[3]", "[2]"});
}

}  // namespace
}  // namespace tokamak::testing
