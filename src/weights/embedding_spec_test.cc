// Strict reading of the sentence-transformers files.
#include "weights/embedding_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tokamak {
namespace {

using testing::HasSubstr;

constexpr char kModules[] = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";
constexpr char kPooling[] =
    R"({"word_embedding_dimension": 384, "pooling_mode_cls_token": false,
        "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false,
        "pooling_mode_mean_sqrt_len_tokens": false})";

class EmbeddingFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "embedding_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/1_Pooling");
    Write("modules.json", kModules);
    Write("1_Pooling/config.json", kPooling);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  Result<std::optional<EmbeddingSpec>> Read(const std::string& config = "{}") {
    const auto parsed = ParseConfigJson(config, "config.json");
    EXPECT_TRUE(parsed.ok());
    return ReadEmbeddingSpec(folder_, *parsed);
  }
  EmbeddingSpec ReadOrDie(const std::string& config = "{}") {
    auto spec = Read(config);
    EXPECT_TRUE(spec.ok()) << spec.status().ToString();
    return spec.ok() && *spec ? **spec : EmbeddingSpec();
  }
  std::string Error(const std::string& config = "{}") { return Read(config).status().ToString(); }

  std::string folder_;
};

TEST_F(EmbeddingFiles, ReadsMiniLm) {
  Write("sentence_bert_config.json", R"({"max_seq_length": 256, "do_lower_case": false})");
  Write("config_sentence_transformers.json",
        R"({"__version__": {"sentence_transformers": "2.0.0"}})");
  const EmbeddingSpec spec = ReadOrDie();
  EXPECT_EQ(spec.pooling, Pooling::kMean);
  EXPECT_TRUE(spec.normalize);
  EXPECT_EQ(spec.max_tokens, 256);
  EXPECT_EQ(spec.hidden_size, 384);
  EXPECT_TRUE(spec.prompts.empty());
}

TEST_F(EmbeddingFiles, ReadsQwen) {
  Write("1_Pooling/config.json",
        R"({"word_embedding_dimension": 1024, "pooling_mode_cls_token": false,
            "pooling_mode_mean_tokens": false, "pooling_mode_max_tokens": false,
            "pooling_mode_mean_sqrt_len_tokens": false, "pooling_mode_weightedmean_tokens": false,
            "pooling_mode_lasttoken": true, "include_prompt": true})");
  Write("config_sentence_transformers.json",
        R"({"prompts": {"query": "Instruct: x\nQuery:", "document": ""},
            "default_prompt_name": null, "similarity_fn_name": "cosine"})");
  Write("tokenizer_config.json", R"({"model_max_length": 131072})");
  const EmbeddingSpec spec = ReadOrDie(R"({"is_matryoshka": true})");
  EXPECT_EQ(spec.pooling, Pooling::kLast);
  EXPECT_EQ(spec.max_tokens, 131072);
  ASSERT_EQ(spec.prompts.size(), 2u);
  EXPECT_EQ(spec.prompts[0].second, "Instruct: x\nQuery:");
  EXPECT_EQ(spec.default_prompt, "");
  EXPECT_TRUE(spec.any_dimensions);
  EXPECT_EQ(ReadOrDie(R"({"matryoshka_dimensions": [256, 64]})").dimensions,
            (std::vector<int32_t>{64, 256}));
}

TEST_F(EmbeddingFiles, ReadsNewerNames) {
  Write("1_Pooling/config.json", R"({"embedding_dimension": 8, "pooling_mode": "cls"})");
  Write("modules.json", R"([
    {"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.sentence_transformer.modules.Pooling"}])");
  const EmbeddingSpec spec = ReadOrDie();
  EXPECT_EQ(spec.pooling, Pooling::kCls);
  EXPECT_FALSE(spec.normalize);
}

TEST_F(EmbeddingFiles, AreOptional) {
  std::filesystem::remove(folder_ + "/modules.json");
  const auto spec = Read();
  ASSERT_TRUE(spec.ok());
  EXPECT_FALSE(spec->has_value());
}

TEST_F(EmbeddingFiles, NamesUnknownModules) {
  for (const auto& [modules, message] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "expected an array"},
           {"[", "modules.json"},
           {"[1]", "[0]"},
           {"[]", "there is no Pooling"},
           {R"([{"path": "", "type": "sentence_transformers.models.Transformer"}])", "no Pooling"},
           {R"([{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
                {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])",
            "[0].path"},
           {R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                {"path": "../x", "type": "sentence_transformers.models.Pooling"}])",
            "[1].path"},
           {R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])",
            "[2].type: \"Dense\""},
           {R"([{"path": "", "type": "custom_st.Transformer"}])", "[0].type"}}) {
    Write("modules.json", modules);
    EXPECT_THAT(Error(), HasSubstr(message)) << modules;
  }
}

TEST_F(EmbeddingFiles, NamesUnknownPoolings) {
  for (const auto& [config, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"word_embedding_dimension": 8})", "0 supported pooling modes"},
           {R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": true,
                "pooling_mode_mean_tokens": true})",
            "2 supported pooling modes"},
           {R"({"word_embedding_dimension": 8, "pooling_mode_max_tokens": true})",
            "pooling_mode_max_tokens"},
           {R"({"word_embedding_dimension": 8, "pooling_mode": "max"})", "pooling_mode"},
           {R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": 1})",
            "pooling_mode_cls_token"},
           {R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": true, "whatever": 1})",
            "whatever"},
           {R"({"pooling_mode_cls_token": true})", "word_embedding_dimension"}}) {
    Write("1_Pooling/config.json", config);
    EXPECT_THAT(Error(), HasSubstr(message)) << config;
  }
  std::filesystem::remove(folder_ + "/1_Pooling/config.json");
  EXPECT_THAT(Error(), HasSubstr("1_Pooling/config.json"));
}

TEST_F(EmbeddingFiles, NamesOtherFieldsThatChangeVectors) {
  const auto expect = [&](const std::string& file, const std::string& text,
                          const std::string& message) {
    Write(file, text);
    EXPECT_THAT(Error(), HasSubstr(message)) << text;
    std::filesystem::remove(folder_ + "/" + file);
  };
  expect("sentence_bert_config.json", R"({"do_lower_case": true})", "do_lower_case");
  expect("sentence_bert_config.json", R"({"max_seq_length": "x"})", "max_seq_length");
  expect("sentence_bert_config.json", R"({"stride": 5})", "stride");
  expect("config_sentence_transformers.json", R"({"truncate_dim": 64})", "truncate_dim");
  expect("config_sentence_transformers.json", R"({"prompts": {"a": 1}})", "prompts.a");
  expect("config_sentence_transformers.json",
         R"({"prompts": {"a": "b"}, "default_prompt_name": "c"})", "default_prompt_name");
  EXPECT_THAT(Error(R"({"matryoshka_dimensions": 5})"), HasSubstr("matryoshka_dimensions"));
  EXPECT_THAT(Error(R"({"matryoshka_dimensions": [0]})"), HasSubstr("matryoshka_dimensions"));
  EXPECT_THAT(Error(R"({"is_matryoshka": 1})"), HasSubstr("is_matryoshka"));
}

}  // namespace
}  // namespace tokamak
