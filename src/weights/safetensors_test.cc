// Tests safetensors files and Hugging Face directories, good and bad.
#include "weights/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "quant/half.h"
#include "weights/fp8_blocks.h"
#include "weights/hf_checkpoint.h"

namespace tokamak {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file: the header's length, the header, and `data` bytes that count up.
std::string File(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  out += header;
  for (size_t i = 0; i < data; ++i) out.push_back(static_cast<char>(i));
  return out;
}

Result<std::shared_ptr<const SafetensorsModel>> Read(const std::string& bytes) {
  return SafetensorsModel::FromParts({MakeMemoryBytes("m.safetensors", bytes)});
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   int begin, int end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(Safetensors, ReadsTensorsAndTheirRows) {
  const std::string good = "{\"__metadata__\":{\"format\":\"pt\"}," +
                           Tensor("b", "BF16", "[3]", 8, 14) + "," +
                           Tensor("a", "F16", "[2,2]", 0, 8) + "}  ";
  const auto model = Read(File(good, 14));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  ASSERT_EQ((*model)->tensors().size(), 2u);
  const StoredTensor* a = (*model)->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (Shape{2, 2}));
  EXPECT_EQ(a->dtype, DType::kF16);
  const auto weight = (*model)->Weight(*a);
  ASSERT_TRUE(weight.ok());
  char row[4];
  ASSERT_TRUE((*weight)->ReadRows(1, 2, reinterpret_cast<std::byte*>(row)).ok());
  EXPECT_EQ(std::string(row, 4), std::string("\4\5\6\7", 4));
  EXPECT_EQ((*model)->Find("c"), nullptr);
}

TEST(Safetensors, RefusesMalformedFilesNamingFileAndTensor) {
  const struct {
    std::string header;
    size_t data;
    const char* expected;
  } cases[] = {
      {"{" + Tensor("t", "F32", "[2]", 0, 8) + "}", 4, "exceed the 4 bytes"},
      {"{" + Tensor("t", "F32", "[2]", 0, 4) + "}", 4, "takes 8 bytes"},
      {"{" + Tensor("t", "F32", "[2]", 8, 0) + "}", 8, "takes 8 bytes"},
      {"{" + Tensor("t", "F32", "[2]", 4, 12) + "}", 12, "leave a gap from byte 0 on"},
      {"{" + Tensor("s", "F32", "[2]", 0, 8) + "," + Tensor("t", "F32", "[2]", 4, 12) + "}", 12,
       "overlap data up to byte 8"},
      {"{" + Tensor("s", "I8", "[2]", 0, 2) + "," + Tensor("t", "F32", "[1]", 2, 6) + "}", 6,
       "not a multiple of the size of"},
      {"{" + Tensor("t", "F32", "[1]", 0, 4) + "}", 8, "cover only 4"},
      {"{" + Tensor("t", "F32", "[4294967296,4294967296]", 0, 0) + "}", 0, "too large"},
      {"{" + Tensor("t", "F31", "[1]", 0, 4) + "}", 4, "\"F31\""},
      {"{" + Tensor("t", "F32", "[1,1,1,1,1,1]", 0, 4) + "}", 4, "6 dimensions"},
      {"{" + Tensor("t", "F32", "[1]", 0, 4) + "," + Tensor("t", "F32", "[1]", 0, 4) + "}", 4,
       "appears twice"},
      {"{" + Tensor("t", "F32", fmt::format("[{}]", fmt::join(std::vector(33, 1), ",")), 0, 4) +
           "}",
       4, "too long"},
      {"{" + Tensor("t", "F32", "[-1]", 0, 4) + "}", 4, "negative"},
      {"{" + Tensor("t", "F32", "[1.5]", 0, 4) + "}", 4, "fraction"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "needs a dtype"},
      {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two numbers"},
      {"{\"t\":{\"type\":\"F32\"}}", 4, "\"type\""},
      {"{\"t\":[]}", 4, "\"t\""},
      {"[]", 0, "must be a JSON object"},
      {"{\"t\":", 0, "malformed JSON"},
      {std::string(100000, '['), 0, "object"},
  };
  for (const auto& bad : cases) {
    const auto model = Read(File(bad.header, bad.data));
    ASSERT_FALSE(model.ok()) << bad.header.substr(0, 200);
    EXPECT_THAT(model.status().ToString(),
                AllOf(HasSubstr("m.safetensors"), HasSubstr(bad.expected)))
        << bad.header.substr(0, 200);
  }
  EXPECT_THAT(Read("abc").status().ToString(), HasSubstr("too few"));
  EXPECT_THAT(Read(std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10)).status().ToString(),
              HasSubstr("a header size of"));
}

TEST(Safetensors, UnsupportedTypesAreListedButRefusedWhenRead) {
  const auto model = Read(File("{" + Tensor("t", "F8_E4M3", "[2,2]", 0, 4) + "}", 4));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto weight = (*model)->Weight((*model)->tensors()[0]);
  ASSERT_FALSE(weight.ok());
  EXPECT_THAT(weight.status().ToString(), AllOf(HasSubstr("F8_E4M3"), HasSubstr("\"t\"")));
}

TEST(Safetensors, AnIndexMustStayInItsFolder) {
  for (const char* file : {"../m.safetensors", "/etc/m.safetensors", "a/m.safetensors",
                           "a\\\\m.safetensors", "m.bin", "", ".safetensors"}) {
    const auto index = ParseSafetensorsIndex(
        std::string("{\"weight_map\":{\"t\":\"") + file + "\"}}", "index.json");
    ASSERT_FALSE(index.ok()) << file;
    EXPECT_THAT(index.status().ToString(), AllOf(HasSubstr("index.json"), HasSubstr("\"t\"")));
  }
  EXPECT_FALSE(ParseSafetensorsIndex("{}", "i").ok());
  EXPECT_FALSE(ParseSafetensorsIndex("{\"weight_map\":{\"t\":1}}", "i").ok());
  EXPECT_FALSE(ParseSafetensorsIndex("{\"weight_map\":{\"t\":{}}}", "i").ok());
  EXPECT_FALSE(ParseSafetensorsIndex("7", "i").ok());
  const auto index = ParseSafetensorsIndex(
      R"({"metadata":{"total_size":4,"x":[{"weight_map":"y"}]},"weight_map":{"t":"a.safetensors"}})",
      "i");
  ASSERT_TRUE(index.ok()) << index.status().ToString();
  EXPECT_EQ(index->files, std::vector<std::string>{"a.safetensors"});
}

TEST(Safetensors, TensorsMustBeWhereTheIndexSays) {
  const auto parts = [] {
    return std::vector<std::shared_ptr<const ByteSource>>{
        MakeMemoryBytes("one", File("{" + Tensor("s", "F32", "[1]", 0, 4) + "}", 4)),
        MakeMemoryBytes("two", File("{" + Tensor("t", "F32", "[1]", 0, 4) + "}", 4))};
  };
  EXPECT_TRUE(SafetensorsModel::FromParts(parts(), {{"s", 0}, {"t", 1}}).ok());
  EXPECT_THAT(SafetensorsModel::FromParts(parts(), {{"s", 1}, {"t", 1}}).status().ToString(),
              HasSubstr("tensor \"s\" is in one, but the index says that it is in two"));
  EXPECT_THAT(SafetensorsModel::FromParts(parts(), {{"s", 0}}).status().ToString(),
              HasSubstr("two: tensor \"t\" is not in the index"));
  EXPECT_THAT(
      SafetensorsModel::FromParts(parts(), {{"s", 0}, {"t", 1}, {"u", 1}}).status().ToString(),
      HasSubstr("two: has no tensor \"u\""));
  auto twice = parts();
  twice.push_back(twice[0]);
  EXPECT_THAT(SafetensorsModel::FromParts(twice).status().ToString(),
              HasSubstr("tensor \"s\" is in one and in one"));
}

class HfDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("config.json", R"({"architectures": ["LlamaForCausalLM"], "eos_token_id": [7, 3]})");
    Write("model.safetensors", File("{" + Tensor("t", "F32", "[1]", 0, 4) + "}", 4));
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  void Remove(const std::string& name) { std::filesystem::remove(folder_ + "/" + name); }
  std::string Error() { return OpenCheckpoint(folder_).status().ToString(); }

  const std::string folder_ = ::testing::TempDir() + "/hf_directory";
};

TEST_F(HfDirectory, HasItsConfigurationTensorsAndDefaults) {
  Result<Checkpoint> checkpoint = OpenCheckpoint(folder_ + "/");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(checkpoint->architecture, "LlamaForCausalLM");
  EXPECT_EQ(checkpoint->directory, folder_);
  EXPECT_EQ(checkpoint->weight_bytes, 4);
  EXPECT_TRUE(checkpoint->tensors->Has("t"));
  EXPECT_EQ(checkpoint->generation.eos_token_ids, (std::vector<int32_t>{3, 7}));
  EXPECT_FALSE(checkpoint->generation.sampling.temperature.has_value());

  Write("generation_config.json",
        R"({"temperature": 0.5, "top_k": 20, "eos_token_id": 9, "do_sample": true})");
  checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(checkpoint->generation.sampling.temperature, 0.5f);
  EXPECT_EQ(checkpoint->generation.sampling.top_k, 20);
  EXPECT_EQ(checkpoint->generation.eos_token_ids, std::vector<int32_t>{9});
}

TEST_F(HfDirectory, GreedyDefaultsAreATemperatureOfZero) {
  Write("generation_config.json", R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9})");
  Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(checkpoint->generation.sampling.temperature, 0.0f);
  EXPECT_EQ(checkpoint->generation.sampling.top_p, 0.9f);  // applies to requests that sample
  Write("generation_config.json", R"({"do_sample": "no"})");
  EXPECT_THAT(Error(), HasSubstr("do_sample: expected true or false, got \"no\""));
}

TEST_F(HfDirectory, NamesUnsupportedGenerationFields) {
  Write("generation_config.json", R"({"num_beams": 4, "no_repeat_ngram_size": 3, "typical_p": 0.9,
      "suppress_tokens": [1, 2], "bad_words_ids": [[3]], "min_new_tokens": 5,
      "begin_suppress_tokens": [], "guidance_scale": 1, "forced_eos_token_id": null,
      "epsilon_cutoff": 0.0, "encoder_repetition_penalty": 1.0, "length_penalty": 2.0,
      "max_length": 4096, "max_time": 2.5, "num_return_sequences": 1, "token_healing": true,
      "max_new_tokens": 100, "early_stopping": true, "use_cache": true})");
  const Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_THAT(checkpoint->generation.without_effect,
              testing::ElementsAre("bad_words_ids", "max_length", "max_time", "min_new_tokens",
                                   "no_repeat_ngram_size", "num_beams", "suppress_tokens",
                                   "token_healing"));
  EXPECT_EQ(checkpoint->generation.sampling.typical_p, 0.9f);
  EXPECT_EQ(checkpoint->generation.sampling.max_tokens, 100);
}

TEST_F(HfDirectory, NamesMissingAndWrongFiles) {
  Write("generation_config.json", R"({"top_p": "high"})");
  EXPECT_THAT(Error(), AllOf(HasSubstr("generation_config.json"), HasSubstr("top_p")));
  Write("generation_config.json", R"({"eos_token_id": [1, -2]})");
  EXPECT_THAT(Error(), HasSubstr("eos_token_id"));
  Remove("generation_config.json");

  Write("config.json",
        R"({"architectures": ["L"], "quantization_config": {"quant_method": "gptq"}})");
  EXPECT_THAT(Error(), AllOf(HasSubstr("quant_method"), HasSubstr("gptq")));
  // The layout of other families' experts differs.
  Write(
      "config.json",
      R"({"architectures": ["MixtralForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}})");
  EXPECT_THAT(Error(), AllOf(HasSubstr("quantization_config.quant_method"),
                             HasSubstr("GptOssForCausalLM"), HasSubstr("MixtralForCausalLM")));
  Write("config.json", "{");
  EXPECT_THAT(Error(), HasSubstr("config.json"));
  Remove("config.json");
  EXPECT_THAT(Error(), HasSubstr("has no config.json"));

  Write("config.json", R"({"architectures": ["LlamaForCausalLM"]})");
  Remove("model.safetensors");
  EXPECT_THAT(Error(), HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  Write("model.safetensors.index.json", R"({"weight_map": {"t": "model-1-of-1.safetensors"}})");
  EXPECT_THAT(Error(), AllOf(HasSubstr("index.json names"), HasSubstr("model-1-of-1.safetensors")));
}

TEST_F(HfDirectory, AnOutputMatrixBesideTiedEmbeddingsMustEqualThem) {
  const std::string header = "{" + Tensor("model.embed_tokens.weight", "F32", "[2,1]", 0, 8) + "," +
                             Tensor("lm_head.weight", "F32", "[2,1]", 8, 16) + "}";
  const auto check = [&](bool equal) {
    std::string file = File(header, 16);
    if (equal) file.replace(file.size() - 8, 8, file.substr(file.size() - 16, 8));
    Write("model.safetensors", file);
    Write("config.json", R"({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true})");
    Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
    EXPECT_TRUE(checkpoint->tensors->Find("model.embed_tokens.weight", Shape{2, 1}).ok());
    return checkpoint->tensors->CheckAllUsed();
  };
  EXPECT_TRUE(check(true).ok());
  EXPECT_THAT(check(false).ToString(), HasSubstr("tie_word_embeddings"));
}

// A text and image model, in both layouts that exist.
TEST_F(HfDirectory, ATextModelInAVisionCheckpointHasItsOwnClassesNames) {
  const std::vector<std::string> layouts[] = {
      {"language_model.model.norm.weight", "language_model.lm_head.weight", "vision_tower.a",
       "multi_modal_projector.b"},
      {"model.language_model.norm.weight", "lm_head.weight", "model.vision_tower.a",
       "model.multi_modal_projector.b"}};
  for (const std::vector<std::string>& names : layouts) {
    std::string header;
    int end = 0;
    for (const std::string& name : names) {
      header += (end > 0 ? "," : "{") + Tensor(name, "F32", "[1,1]", end, end + 4);
      end += 4;
    }
    Write("model.safetensors", File(header + "}", static_cast<size_t>(end)));
    Write("config.json", R"({"architectures": ["LlavaForConditionalGeneration"],
                             "text_config": {"eos_token_id": 5}, "vision_config": {}})");
    const Checkpoint checkpoint = *OpenCheckpoint(folder_);
    EXPECT_EQ(checkpoint.weight_bytes, 16);
    EXPECT_EQ(checkpoint.generation.eos_token_ids, std::vector<int32_t>{5});
    EXPECT_FALSE(checkpoint.tensors->Has("model.embed_tokens.weight"));
    EXPECT_THAT(
        checkpoint.tensors->Find("model.embed_tokens.weight", Shape{1, 1}).status().ToString(),
        HasSubstr(names[0].substr(0, names[0].find("norm")) + "embed_tokens.weight"));
    // The others have their published names.
    EXPECT_TRUE(checkpoint.tensors->Find("vision_tower.a", Shape{1, 1}).ok());
    checkpoint.tensors->Skip("multi_modal_projector.");
    EXPECT_TRUE(checkpoint.tensors->Find("model.norm.weight", Shape{1, 1}).ok());
    EXPECT_THAT(checkpoint.tensors->CheckAllUsed().ToString(), HasSubstr(names[1]));
    EXPECT_TRUE(checkpoint.tensors->Find("lm_head.weight", Shape{1, 1}).ok());
    EXPECT_EQ(checkpoint.tensors->CheckAllUsed().ToString(), "ok");
  }
}

class Fp8Directory : public HfDirectory {
 protected:
  static constexpr const char* kConfig = R"({"architectures": ["L"], "quantization_config": {
      "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
      "weight_block_size": [128, 128]}})";
  static constexpr int kRows = 130, kCols = 129;

  // Writes a matrix of ones (0x38) in two by two blocks, with these scales.
  void WriteMatrix(const std::string& scale_shape, std::vector<float> scales,
                   const std::string& scale_name = "w_scale_inv") {
    constexpr int kBytes = kRows * kCols + 2;  // a multiple of 4
    const int end = kBytes + static_cast<int>(4 * scales.size());
    std::string file =
        File("{" + Tensor("w", "F8_E4M3", fmt::format("[{},{}]", kRows, kCols), 0, kRows * kCols) +
                 "," + Tensor("pad", "U8", "[2]", kRows * kCols, kBytes) + "," +
                 Tensor(scale_name, "F32", scale_shape, kBytes, end) + "}",
             static_cast<size_t>(end));
    char* data = file.data() + file.size() - end;
    std::memset(data, 0x38, size_t{kRows} * size_t{kCols});
    std::memcpy(data + kBytes, scales.data(), 4 * scales.size());
    Write("model.safetensors", file);
  }

  Result<std::shared_ptr<const WeightSource>> Find() {
    Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
    if (!checkpoint.ok()) return checkpoint.status();
    return checkpoint->tensors->Find("w", Shape{kRows, kCols});
  }
};

TEST_F(Fp8Directory, EachBlockHasItsScale) {
  Write("config.json", kConfig);
  WriteMatrix("[2,2]", {1, 2, 4, 8});
  const auto weight = Find();
  ASSERT_TRUE(weight.ok()) << weight.status().ToString();
  ASSERT_EQ((*weight)->dtype(), DType::kBF16);
  std::vector<uint16_t> values(3 * kCols);
  ASSERT_TRUE((*weight)->ReadRows(126, 129, reinterpret_cast<std::byte*>(values.data())).ok());
  const auto at = [&](size_t row, size_t col) {
    return BFloat16ToFloat(values[row * kCols + col]);
  };
  EXPECT_EQ(at(0, 0), 1);
  EXPECT_EQ(at(1, 127), 1);
  EXPECT_EQ(at(1, 128), 2);
  EXPECT_EQ(at(2, 0), 4);
  EXPECT_EQ(at(2, 128), 8);
}

TEST_F(Fp8Directory, NamesMissingAndWrongScales) {
  Write("config.json", kConfig);
  const auto error = [&] { return Find().status().ToString(); };
  WriteMatrix("[2,2]", {1, 2, 4, 8}, "w_scale");
  EXPECT_THAT(error(), AllOf(HasSubstr("\"w\""), HasSubstr("\"w_scale_inv\"")));
  WriteMatrix("[4]", {1, 2, 4, 8});
  EXPECT_THAT(error(), AllOf(HasSubstr("w_scale_inv"), HasSubstr("expected [2, 2]")));
  WriteMatrix("[2,2]", {1, 2, NAN, 8});
  EXPECT_THAT(error(), AllOf(HasSubstr("w_scale_inv"), HasSubstr("nan")));
  WriteMatrix("[2,2]", {1, 2, 4, 8});
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"fmt\": \"e4m3\"", "\"fmt\": \"e5m2\""},
           {"\"activation_scheme\": \"dynamic\"", "\"activation_scheme\": \"static\""},
           {"\"weight_block_size\": [128, 128]", "\"weight_block_size\": [64, 128]"},
           {"\"weight_block_size\": [128, 128]", "\"weight_bits\": 8"},
           {"\"quant_method\": \"fp8\"", "\"quant_method\": \"awq\""}}) {
    std::string config = kConfig;
    config.replace(config.find(from), from.size(), to);
    Write("config.json", config);
    const std::string field = from.substr(1, from.find('"', 1) - 1);
    EXPECT_THAT(error(), AllOf(HasSubstr("quantization_config"), HasSubstr(field))) << config;
  }
}

// The result of torch's .to(torch.float8_e4m3fn).
TEST_F(Fp8Directory, WithoutScalesTheElementsAreTheValues) {
  Write("config.json", R"({"architectures": ["L"]})");
  WriteMatrix("[1]", {7}, "other");
  Result<Checkpoint> checkpoint = OpenCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const auto weight = checkpoint->tensors->Find("w", Shape{kRows, kCols});
  ASSERT_TRUE(weight.ok()) << weight.status().ToString();
  std::vector<uint16_t> values(kCols);
  ASSERT_TRUE((*weight)->ReadRows(129, 130, reinterpret_cast<std::byte*>(values.data())).ok());
  EXPECT_THAT(values, ::testing::Each(FloatToBFloat16(1)));
  // Unused, because the configuration does not announce scales.
  EXPECT_THAT(checkpoint->tensors->CheckAllUsed().ToString(), HasSubstr("\"other\""));
}

}  // namespace
}  // namespace tokamak
