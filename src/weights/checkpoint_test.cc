#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "quant/quantize.h"
#include "weights/testing/gguf_writer.h"

namespace tokamak {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16;

// A [rows, cols] matrix that holds r throughout row r.
std::vector<float> RowNumbers(int rows, int cols) {
  std::vector<float> values;
  for (int i = 0; i < rows * cols; ++i) values.push_back(static_cast<float>(i / cols));
  return values;
}

// Interleaves the half-split rows of each head, as llama.cpp's converter does.
std::vector<float> Interleave(const std::vector<float>& rows, int heads, int head_dim, int cols) {
  std::vector<float> out(rows.size());
  for (int head = 0; head < heads; ++head) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < head_dim / 2; ++i) {
        const int from = head * head_dim + half * head_dim / 2 + i;
        const int to = head * head_dim + 2 * i + half;
        std::copy_n(rows.begin() + from * cols, cols, out.begin() + to * cols);
      }
    }
  }
  return out;
}

struct TinyOptions {
  bool tied = true;
  bool biases = false;
  std::string architecture = "llama";
  std::vector<float> rope_freqs = {};
  int kv_heads = kKvHeads;  // in the metadata
  int layers = 1;
};

GgufWriter Tiny(const TinyOptions& options = {}) {
  GgufWriter writer;
  const std::string& arch = options.architecture;
  writer.Set("general.architecture", arch);
  writer.Set(arch + ".embedding_length", kHidden);
  writer.Set(arch + ".block_count", options.layers);
  writer.Set(arch + ".feed_forward_length", 96);
  writer.Set(arch + ".context_length", 128);
  writer.Set(arch + ".attention.head_count", kHeads);
  writer.Set(arch + ".attention.head_count_kv", options.kv_heads);
  writer.Set(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  writer.Set(arch + ".rope.dimension_count", kHeadDim);
  const auto matrix = [&](const char* name, int rows, int cols) {
    writer.AddTensor(name, DType::kF32, {rows, cols}, RowNumbers(rows, cols));
  };
  matrix("token_embd.weight", 40, kHidden);
  if (!options.tied) matrix("output.weight", 40, kHidden);
  const int q_rows = kHeads * kHeadDim, kv_rows = kKvHeads * kHeadDim;
  writer.AddTensor("blk.0.attn_q.weight", DType::kQ8_0, {q_rows, kHidden},
                   Interleave(RowNumbers(q_rows, kHidden), kHeads, kHeadDim, kHidden));
  writer.AddTensor("blk.0.attn_k.weight", DType::kF16, {kv_rows, kHidden},
                   Interleave(RowNumbers(kv_rows, kHidden), kKvHeads, kHeadDim, kHidden));
  matrix("blk.0.attn_v.weight", kv_rows, kHidden);
  if (options.biases) {
    writer.AddTensor("blk.0.attn_q.bias", DType::kF32, {q_rows},
                     Interleave(RowNumbers(q_rows, 1), kHeads, kHeadDim, 1));
  }
  if (!options.rope_freqs.empty()) {
    writer.AddTensor("rope_freqs.weight", DType::kF32,
                     {static_cast<int64_t>(options.rope_freqs.size())}, options.rope_freqs);
  }
  return writer;
}

Result<Checkpoint> Make(const GgufWriter& writer) {
  const auto file = GgufFile::FromParts({MakeMemoryBytes("tiny.gguf", writer.Bytes())});
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  return MakeGgufCheckpoint(*file);
}

std::vector<float> Values(const WeightSource& weight, int64_t begin, int64_t end) {
  const int64_t cols = weight.shape().cols();
  std::vector<std::byte> data(RowBytes(weight.dtype(), cols) * static_cast<size_t>(end - begin));
  EXPECT_TRUE(weight.ReadRows(begin, end, data.data()).ok());
  std::vector<float> values(static_cast<size_t>((end - begin) * cols));
  DequantizeRow(weight.dtype(), data.data(), (end - begin) * cols, values.data());
  return values;
}

TEST(GgufCheckpoint, TranslatesTheConfigurationOfAPlainLlama) {
  const Result<Checkpoint> checkpoint = Make(Tiny());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(checkpoint->architecture, "LlamaForCausalLM");
  EXPECT_NE(checkpoint->gguf, nullptr);
  ConfigReader reader = checkpoint->Reader();
  EXPECT_EQ(reader.Int("hidden_size"), kHidden);
  EXPECT_EQ(reader.Int("num_hidden_layers"), 1);
  EXPECT_EQ(reader.Int("intermediate_size"), 96);
  EXPECT_EQ(reader.Int("max_position_embeddings"), 128);
  EXPECT_EQ(reader.Int("num_attention_heads"), kHeads);
  EXPECT_EQ(reader.Int("num_key_value_heads"), kKvHeads);
  EXPECT_EQ(reader.Int("vocab_size"), 40);
  EXPECT_EQ(reader.Number("rope_theta"), 10000.0);
  EXPECT_EQ(static_cast<float>(reader.Number("rms_norm_eps")), 1e-5f);
  EXPECT_TRUE(reader.Bool("tie_word_embeddings"));
  EXPECT_FALSE(reader.Bool("attention_bias"));
  EXPECT_FALSE(reader.BoolOr("mlp_bias", false));
  reader.Expect("hidden_act", "silu");
  EXPECT_FALSE(reader.Has("rope_scaling"));
  EXPECT_FALSE(reader.Has("head_dim"));
  EXPECT_TRUE(reader.Finish().ok()) << reader.Finish().ToString();
}

TEST(GgufCheckpoint, TranslatesOptionalParts) {
  GgufWriter writer = Tiny({.tied = false, .biases = true});
  writer.Set("llama.rope.freq_base", 5e5f);
  writer.Set("llama.rope.scaling.type", "yarn");
  writer.Set("llama.rope.scaling.factor", 4.0f);
  writer.Set("llama.rope.scaling.original_context_length", 32);
  writer.Set("llama.attention.key_length", 32);
  writer.Set("llama.attention.value_length", 32);
  const Result<Checkpoint> checkpoint = Make(writer);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ConfigReader reader = checkpoint->Reader();
  EXPECT_FALSE(reader.Bool("tie_word_embeddings"));
  EXPECT_TRUE(reader.Bool("attention_bias"));
  EXPECT_EQ(reader.Number("rope_theta"), 5e5);
  EXPECT_EQ(reader.Int("head_dim"), 32);
  EXPECT_EQ(reader.Number("partial_rotary_factor"), 0.5);
  ConfigReader scaling = reader.Object("rope_scaling");
  EXPECT_EQ(scaling.String("rope_type"), "yarn");
  EXPECT_EQ(scaling.Number("factor"), 4.0);
  EXPECT_EQ(scaling.Int("original_max_position_embeddings"), 32);
}

// An array of booleans, as SetRaw takes it.
std::string ListOfBools(const std::vector<bool>& values) {
  std::string payload(4, '\0');
  payload[0] = 7;  // the type of the elements
  const uint64_t count = values.size();
  payload.append(reinterpret_cast<const char*>(&count), sizeof(count));
  for (const bool value : values) payload += value ? '\1' : '\0';
  return payload;
}

// Qwen3.5 with two layers, of which the second only drafts tokens.
GgufWriter TinyDelta(int inner_size = 20) {
  GgufWriter writer = Tiny({.architecture = "qwen35", .layers = 2});
  writer.Set("qwen35.nextn_predict_layers", 1);
  writer.Set("qwen35.ssm.conv_kernel", 3);
  writer.Set("qwen35.ssm.state_size", 8);
  writer.Set("qwen35.ssm.group_count", 2);
  writer.Set("qwen35.ssm.time_step_rank", 4);
  writer.Set("qwen35.ssm.inner_size", inner_size);
  writer.SetArray("qwen35.rope.dimension_sections", std::vector<int32_t>{4, 2, 2, 0});
  return writer;
}

TEST(GgufCheckpoint, TranslatesGatedDeltaNets) {
  for (const bool listed : {false, true}) {
    GgufWriter writer = TinyDelta();
    writer.Set("qwen35.full_attention_interval", 3);
    if (listed) writer.SetRaw("qwen35.attention.recurrent_layers", 9, ListOfBools({true, false}));
    const Result<Checkpoint> checkpoint = Make(writer);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    EXPECT_EQ(checkpoint->architecture, "Qwen3_5ForCausalLM");
    ConfigReader reader = checkpoint->Reader();
    EXPECT_EQ(reader.Int("num_hidden_layers"), 1);
    EXPECT_EQ(reader.Int("mtp_num_hidden_layers"), 1);
    EXPECT_EQ(reader.Int("linear_conv_kernel_dim"), 3);
    EXPECT_EQ(reader.Int("linear_key_head_dim"), 8);
    EXPECT_EQ(reader.Int("linear_num_key_heads"), 2);
    EXPECT_EQ(reader.Int("linear_num_value_heads"), 4);
    EXPECT_EQ(reader.Int("linear_value_head_dim"), 5);
    EXPECT_EQ(reader.Int("full_attention_interval"), 3);
    EXPECT_EQ(reader.Has("layer_types"), listed);
    if (listed) {
      EXPECT_THAT(reader.Strings("layer_types"), testing::ElementsAre("linear_attention"));
    }
    EXPECT_THAT(reader.Object("rope_scaling").Ints("mrope_section"), testing::ElementsAre(4, 2, 2));
  }
}

TEST(GgufCheckpoint, RefusesGatedDeltaNetsWhoseSizesDoNotFit) {
  EXPECT_THAT(Make(TinyDelta(21)).status().ToString(),
              HasSubstr("\"qwen35.ssm.inner_size\" is 21; it must be a multiple of"));
  GgufWriter layers = TinyDelta();
  layers.Set("qwen35.attention.recurrent_layers", 1);
  EXPECT_THAT(Make(layers).status().ToString(), HasSubstr("\"qwen35.attention.recurrent_layers\""));
}

TEST(GgufCheckpoint, LinearScalingIsTheDefaultType) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    GgufWriter writer = Tiny();
    writer.Set(key, 2.0f);
    const Result<Checkpoint> checkpoint = Make(writer);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    ConfigReader scaling = checkpoint->Reader().Object("rope_scaling");
    EXPECT_EQ(scaling.String("rope_type"), "linear");
    EXPECT_EQ(scaling.Number("factor"), 2.0);
  }
}

struct BadMetadata {
  const char* name;
  void (*change)(GgufWriter&);
  const char* message;
};
const BadMetadata kBadMetadata[] = {
    {"UnknownKey", [](GgufWriter& w) { w.Set("llama.attention.sliding_window", 64); },
     "does not know the metadata \"llama.attention.sliding_window\""},
    {"Experts", [](GgufWriter& w) { w.Set("llama.expert_used_count", 2); },
     "\"llama.expert_used_count\" is 2; only 0 is supported"},
    {"HalfAnMoeModel", [](GgufWriter& w) { w.Set("llama.expert_count", 8); },
     "no \"llama.expert_used_count\"; this architecture needs it"},
    {"ScalingType", [](GgufWriter& w) { w.Set("llama.rope.scaling.type", "longrope"); },
     "\"llama.rope.scaling.type\" is \"longrope\"; supported are none, linear, yarn"},
    {"WrongType", [](GgufWriter& w) { w.Set("llama.rope.freq_base", "big"); },
     "\"llama.rope.freq_base\" has type string, expected a number"},
    {"VocabularySize", [](GgufWriter& w) { w.Set("llama.vocab_size", 41); },
     "\"vocab_size\" is 41, but tensor \"token_embd.weight\" has 40 rows"},
    {"UnequalHeadSizes",
     [](GgufWriter& w) {
       w.Set("llama.attention.key_length", 16);
       w.Set("llama.attention.value_length", 8);
     },
     "\"llama.attention.value_length\" is 8; only 16"},
    {"LayersThatDiffer",
     [](GgufWriter& w) {
       w.SetArray("llama.rope.freq_base", std::vector<int32_t>{10000, 20000});
     },
     "\"llama.rope.freq_base\" differs between layers"},
};
class GgufCheckpointErrorTest : public testing::TestWithParam<BadMetadata> {};
INSTANTIATE_TEST_SUITE_P(Metadata, GgufCheckpointErrorTest, testing::ValuesIn(kBadMetadata),
                         [](const auto& info) { return info.param.name; });
TEST_P(GgufCheckpointErrorTest, IsRefusedNamingTheKey) {
  GgufWriter writer = Tiny();
  GetParam().change(writer);
  const Result<Checkpoint> checkpoint = Make(writer);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_THAT(checkpoint.status().ToString(),
              AllOf(HasSubstr("tiny.gguf: "), HasSubstr(GetParam().message)));
}

// Leaves out the key `but`.
GgufWriter TinyDeepseek(std::string_view but = "") {
  GgufWriter writer = Tiny({.architecture = "deepseek2", .kv_heads = 1});
  const std::pair<const char*, int> keys[] = {
      {"attention.kv_lora_rank", 20},     {"attention.key_length", 36},
      {"attention.value_length", 20},     {"attention.key_length_mla", 24},
      {"attention.value_length_mla", 12}, {"expert_count", 4},
      {"expert_used_count", 2},           {"expert_feed_forward_length", 8},
      {"expert_shared_count", 1}};
  for (const auto& [key, value] : keys) {
    if (key != but) writer.Set(std::string("deepseek2.") + key, value);
  }
  return writer;
}

TEST(GgufCheckpoint, TheGatingFunctionTellsDeepseekVersionsApart) {
  GgufWriter writer = TinyDeepseek();
  EXPECT_EQ(Make(writer)->architecture, "DeepseekV2ForCausalLM");
  writer.Set("deepseek2.expert_gating_func", 2);
  EXPECT_EQ(Make(writer)->architecture, "DeepseekV3ForCausalLM");
}

// Early files of models with expert groups lack the key.
TEST(GgufCheckpoint, WarnsOfDeepseekFilesWithoutExpertGroups) {
  const auto warning = [](int num_experts, int num_groups) {
    GgufWriter writer = TinyDeepseek("expert_count");
    writer.Set("deepseek2.expert_count", num_experts);
    if (num_groups > 0) {
      writer.Set("deepseek2.expert_group_count", num_groups);
      writer.Set("deepseek2.expert_group_used_count", 4);
    }
    ::testing::internal::CaptureStderr();
    const Result<Checkpoint> checkpoint = Make(writer);
    const std::string written = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    EXPECT_EQ(checkpoint->Reader().Int("n_group"), std::max(num_groups, 1));
    return written;
  };
  for (const int num_experts : {160, 256}) {
    EXPECT_THAT(warning(num_experts, 0),
                HasSubstr("the metadata has no \"deepseek2.expert_group_count\": every token"));
    EXPECT_EQ(warning(num_experts, 8), "");
    EXPECT_EQ(warning(num_experts, 1), "");
  }
  EXPECT_EQ(warning(64, 0), "");   // V2-Lite
  EXPECT_EQ(warning(384, 0), "");  // Kimi-K2
}

TEST(GgufCheckpoint, RefusesUnknownDeepseekSettingsNamingTheKey) {
  const auto error = [](const std::string& key, auto value) {
    GgufWriter writer = TinyDeepseek(key);
    writer.Set("deepseek2." + key, value);
    return Make(writer).status().ToString();
  };
  for (const char* key : {"attention.key_length", "attention.value_length", "expert_gating_func"}) {
    EXPECT_THAT(error(key, 3), HasSubstr(std::string(key) + "\" is 3; only"));
  }
  EXPECT_THAT(error("attention.kv_lora_rank", -1), HasSubstr("kv_lora_rank\" is"));
  EXPECT_THAT(error("expert_weights_norm", true), HasSubstr("expert_weights_norm\" is true; only"));
  const char* unknown = "does not know the metadata \"deepseek2.";
  for (const char* key : {"nextn_predict_layers", "rope.scaling.yarn_log_multiplier"}) {
    EXPECT_THAT(error(key, 1), HasSubstr(unknown + std::string(key)));
  }
}

TEST(GgufCheckpoint, NamesUnknownArchitecturesAndVocabularyOnlyFiles) {
  EXPECT_THAT(Make(Tiny({.architecture = "mamba"})).status().ToString(),
              HasSubstr("architecture \"mamba\" is not supported; supported: bert, llama"));
  GgufWriter empty;
  EXPECT_THAT(Make(empty).status().ToString(), HasSubstr("no \"general.architecture\""));
  empty.Set("general.architecture", "llama");
  EXPECT_THAT(Make(empty).status().ToString(), HasSubstr("only its vocabulary?"));
}

TEST(GgufCheckpoint, UndoesTheInterleavingOfQueriesAndKeys) {
  const Result<Checkpoint> checkpoint = Make(Tiny({.biases = true}));
  ASSERT_TRUE(checkpoint.ok());
  const std::string attention = "model.layers.0.self_attn.";
  for (const auto& [name, rows] : {std::pair{"q_proj.weight", kHeads * kHeadDim},
                                   std::pair{"k_proj.weight", kKvHeads * kHeadDim},
                                   std::pair{"v_proj.weight", kKvHeads * kHeadDim}}) {
    const auto weight = checkpoint->tensors->Find(attention + name, Shape{rows, kHidden});
    ASSERT_TRUE(weight.ok()) << weight.status().ToString();
    // Every range: ranges within a head, across halves and across heads are read differently.
    for (int begin = 0; begin <= rows; ++begin) {
      for (int end = begin; end <= rows; ++end) {
        const std::vector<float> values = Values(**weight, begin, end);
        for (int row = begin; row < end; ++row) {
          ASSERT_NEAR(values[static_cast<size_t>((row - begin) * kHidden)], row, 0.02)
              << name << " [" << begin << ", " << end << ")";
        }
      }
    }
  }
  const auto bias = checkpoint->tensors->Find(attention + "q_proj.bias", Shape{kHeads * kHeadDim});
  ASSERT_TRUE(bias.ok()) << bias.status().ToString();
  EXPECT_EQ(Values(**bias, 0, 1), RowNumbers(kHeads * kHeadDim, 1));
}

TEST(GgufCheckpoint, ManyThreadsReadOneWeight) {
  const std::string path = testing::TempDir() + "threads.gguf";
  ASSERT_TRUE(Tiny().WriteFile(path).ok());
  const Result<Checkpoint> checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const auto weight = checkpoint->tensors->Find("model.layers.0.self_attn.q_proj.weight",
                                                Shape{kHeads * kHeadDim, kHidden});
  ASSERT_TRUE(weight.ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int row = (i * 7 + t * 13) % (kHeads * kHeadDim);
        const float value = Values(**weight, row, row + 1)[0];
        if (std::fabs(value - static_cast<float>(row)) > 0.02f) ++wrong[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(GgufCheckpoint, RopeFactorsKeepTheirName) {
  const std::vector<float> factors = {1, 2, 4, 8, 16, 32, 32, 32};
  const Result<Checkpoint> with = Make(Tiny({.rope_freqs = factors}));
  ASSERT_TRUE(with.ok());
  EXPECT_TRUE(with->tensors->Has("rope_freqs.weight"));
  const auto weight = with->tensors->Find("rope_freqs.weight", Shape{kHeadDim / 2});
  ASSERT_TRUE(weight.ok());
  EXPECT_EQ(Values(**weight, 0, 1), factors);
  EXPECT_FALSE(Make(Tiny())->tensors->Has("rope_freqs.weight"));
}

TEST(GgufCheckpoint, NamesMissingMisshapenAndUnusedTensors) {
  const Result<Checkpoint> checkpoint = Make(Tiny());
  ASSERT_TRUE(checkpoint.ok());
  TensorSource& tensors = *checkpoint->tensors;
  EXPECT_THAT(tensors.Find("model.norm.weight", Shape{64}).status().ToString(),
              AllOf(HasSubstr("tiny.gguf: there is no tensor \"output_norm.weight\""),
                    HasSubstr("model.norm.weight")));
  EXPECT_THAT(tensors.Find("model.vision.weight", Shape{64}).status().ToString(),
              HasSubstr("model.vision.weight"));
  EXPECT_THAT(tensors
                  .Find("model.layers.0.self_attn.v_proj.weight", Shape{64, 64},
                        "num_key_value_heads 4 × head_dim 16")
                  .status()
                  .ToString(),
              AllOf(HasSubstr("tensor \"blk.0.attn_v.weight\" has shape [32, 64], expected [64, "
                              "64] (num_key_value_heads 4 × head_dim 16)"),
                    HasSubstr("download it again")));
  // Refused tensors do not count as used.
  EXPECT_THAT(tensors.CheckAllUsed().ToString(), HasSubstr("4 tensors"));
  ASSERT_TRUE(tensors.Find("model.embed_tokens.weight", Shape{40, kHidden}).ok());
  for (const auto& [name, rows] : {std::pair{"q", 64}, std::pair{"k", 32}}) {
    ASSERT_TRUE(tensors
                    .Find("model.layers.0.self_attn." + std::string(name) + "_proj.weight",
                          Shape{rows, kHidden})
                    .ok());
  }
  EXPECT_THAT(
      tensors.CheckAllUsed().ToString(),
      HasSubstr("has 1 tensor that this architecture does not use: \"blk.0.attn_v.weight\""));
  ASSERT_TRUE(tensors.Find("model.layers.0.self_attn.v_proj.weight", Shape{32, kHidden}).ok());
  EXPECT_TRUE(tensors.CheckAllUsed().ok());
}

TEST(GgufCheckpoint, RefusesIntegerWeights) {
  GgufWriter writer = Tiny();
  writer.AddRawTensor("output_norm.weight", 26, {64}, std::string(256, '\0'));
  const Result<Checkpoint> checkpoint = Make(writer);
  EXPECT_THAT(checkpoint->tensors->Find("model.norm.weight", Shape{64}).status().ToString(),
              HasSubstr("has type I32, but weights cannot be integers"));
}

// ---- Dummy weights ----------------------------------------------------------------------------

Result<Checkpoint> Dummy(const CheckpointOptions& options = {}) {
  const std::string path = testing::TempDir() + "dummy_config.json";
  std::ofstream(path) << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64})";
  return OpenCheckpoint("dummy:" + path, options);
}

TEST(DummyCheckpoint, MakesTheSameTensorsEveryTime) {
  const Result<Checkpoint> checkpoint = Dummy();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(checkpoint->architecture, "LlamaForCausalLM");
  EXPECT_EQ(checkpoint->Reader().Int("hidden_size"), 64);
  const auto a = checkpoint->tensors->Find("a.weight", Shape{256, 512});
  const auto again = Dummy()->tensors->Find("a.weight", Shape{256, 512});
  const auto other = checkpoint->tensors->Find("b.weight", Shape{256, 512});
  const auto seeded = Dummy({.dummy_seed = 1})->tensors->Find("a.weight", Shape{256, 512});
  EXPECT_EQ((*a)->dtype(), DType::kBF16);
  const std::vector<float> values = Values(**a, 0, 256);
  EXPECT_EQ(values, Values(**again, 0, 256));
  EXPECT_NE(values, Values(**other, 0, 256));
  EXPECT_NE(values, Values(**seeded, 0, 256));
  // Rows are the same for every range read.
  EXPECT_EQ(Values(**a, 7, 9),
            std::vector<float>(values.begin() + 7 * 512, values.begin() + 9 * 512));
  double sum = 0, squares = 0;
  for (float x : values) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.0003);
}

TEST(DummyCheckpoint, NormsAreNearOneAndTypesFollowTheShape) {
  const Result<Checkpoint> checkpoint = Dummy({.dummy_dtype = DType::kQ4_1});
  ASSERT_TRUE(checkpoint.ok());
  const auto norm = checkpoint->tensors->Find("model.norm.weight", Shape{1000});
  EXPECT_EQ((*norm)->dtype(), DType::kF32);
  const std::vector<float> values = Values(**norm, 0, 1);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / 1000, 1, 0.02);
  EXPECT_NE(values[0], 1.0f);
  EXPECT_EQ((*checkpoint->tensors->Find("m.weight", Shape{4, 64}))->dtype(), DType::kQ4_1);
  EXPECT_EQ((*checkpoint->tensors->Find("odd.weight", Shape{4, 50}))->dtype(), DType::kBF16);
  EXPECT_FALSE(checkpoint->tensors->Has("anything"));
  EXPECT_TRUE(checkpoint->tensors->CheckAllUsed().ok());
}

TEST(DummyCheckpoint, HasExpertsInMxfp4WhereTheConfigurationSaysSo) {
  const Result<JsonValue> config = ParseConfigJson(
      R"({"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}})",
      "c.json");
  ASSERT_TRUE(config.ok());
  const auto type = [&](const char* tensor, const Shape& shape, CheckpointOptions options = {}) {
    const Result<Checkpoint> checkpoint = MakeDummyCheckpoint(*config, "c.json", options);
    return (*checkpoint->tensors->Find(tensor, shape))->dtype();
  };
  constexpr char kExpert[] = "model.layers.0.mlp.experts.3.up_proj.weight";
  EXPECT_EQ(type(kExpert, Shape{4, 64}), DType::kMXFP4);
  EXPECT_EQ(type("model.layers.0.self_attn.q_proj.weight", Shape{4, 64}), DType::kBF16);
  EXPECT_EQ(type(kExpert, Shape{4, 64}, {.dummy_dtype = DType::kQ8_0}), DType::kQ8_0);
}

TEST(DummyCheckpoint, RefusesConfigurationsWithoutOneArchitecture) {
  for (const char* json : {"{}", R"({"architectures": []})", R"({"architectures": [1]})",
                           R"({"architectures": ["A", "B"]})"}) {
    Result<JsonValue> config = ParseConfigJson(json, "c.json");
    ASSERT_TRUE(config.ok());
    EXPECT_THAT(MakeDummyCheckpoint(*config, "c.json").status().ToString(),
                HasSubstr("c.json: architectures: expected an array of one class name"));
  }
  EXPECT_THAT(OpenCheckpoint("dummy:/nowhere.json").status().ToString(),
              HasSubstr("/nowhere.json"));
}

// ---- The real model ---------------------------------------------------------------------------

uint64_t HashValues(const std::vector<float>& values) {
  uint64_t hash = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    hash += (uint64_t{bits} + 1) * ((2 * i + 1) * 0x9e3779b97f4a7c15);
  }
  return hash;
}

TEST(SmolLM2, EveryWeightHashesAsTheGgufPackageReadsIt) {
  const char* path = std::getenv("TOKAMAK_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "TOKAMAK_TEST_MODEL does not name SmolLM2's .gguf file";
  const Result<Checkpoint> checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  std::ifstream goldens(TOKAMAK_SOURCE_DIR "/tests/golden/weights/smollm2_q4_1.txt");
  std::string line, name, type, dims, hash;
  std::getline(goldens, line);
  ASSERT_THAT(line, testing::StartsWith("sha256 "));
  int tensors = 0;
  while (goldens >> name >> type >> dims >> hash) {
    const size_t x = dims.find('x');
    const Shape shape = x == std::string::npos
                            ? Shape{std::stoll(dims)}
                            : Shape{std::stoll(dims), std::stoll(dims.substr(x + 1))};
    const auto weight = checkpoint->tensors->Find(name, shape);
    ASSERT_TRUE(weight.ok()) << weight.status().ToString();
    EXPECT_EQ(Name((*weight)->dtype()), type);
    EXPECT_EQ(HashValues(Values(**weight, 0, shape.rows())), std::stoull(hash, nullptr, 16))
        << name;
    ++tensors;
  }
  EXPECT_EQ(tensors, 272);
  EXPECT_TRUE(checkpoint->tensors->CheckAllUsed().ok());
}

}  // namespace
}  // namespace tokamak
