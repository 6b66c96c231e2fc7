// Tests a Hugging Face directory's tokenizer and the files around it.
#include "tokenizer/load/vocab_from_hf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "chat/chat_template.h"
#include "chat/json.h"
#include "tokenizer/load/chat_source.h"
#include "tokenizer/load/open_tokenizer.h"

namespace tokamak {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class HfVocabTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("tokenizer.json", R"({"version": "1.0",
      "added_tokens": [{"id": 2, "content": "<s>", "special": true},
                       {"id": 3, "content": "</s>", "special": true}],
      "normalizer": null, "pre_tokenizer": null, "decoder": {"type": "Fuse"},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  std::vector<int32_t> Encode(const std::string& text) {
    const auto tokenizer = OpenTokenizer(folder_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    return tokenizer.ok() ? *(*tokenizer)->Encode(text) : std::vector<int32_t>();
  }

  const std::string folder_ = ::testing::TempDir() + "/vocab_from_hf";
};

TEST_F(HfVocabTest, TheTemplateCountsUnlessTheConfigurationSaysWhatToAdd) {
  EXPECT_THAT(Encode("ab"), ElementsAre(2, 0, 1));
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_THAT(Encode("ab"), ElementsAre(2, 0, 1));
  Write("tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false})");
  EXPECT_THAT(Encode("ab"), ElementsAre(0, 1));
  Write(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true, "add_eos_token": true})");
  EXPECT_THAT(Encode("ab"), ElementsAre(2, 0, 1, 3));
  Write("tokenizer_config.json", R"({"add_bos_token": "yes"})");
  EXPECT_THAT(OpenTokenizer(folder_).status().ToString(), HasSubstr("add_bos_token"));
  Write("tokenizer_config.json", R"({"bos_token": "<other>"})");
  EXPECT_THAT(OpenTokenizer(folder_).status().ToString(), HasSubstr("<other>"));
}

TEST_F(HfVocabTest, EndTokensAreThoseOfAllFiles) {
  Write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  const Result<VocabSpec> vocab = VocabFromHf(folder_, {1, 500});
  ASSERT_TRUE(vocab.ok()) << vocab.status().ToString();
  EXPECT_EQ(vocab->special.eos, 3);
  EXPECT_THAT(vocab->end_tokens, ElementsAre(1));  // 500 is a padding row of the model
  const auto tokenizer = Tokenizer::Create(*vocab);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->end_of_generation_ids(), ElementsAre(1, 3));
}

TEST_F(HfVocabTest, TheChatTemplateIsTheFileOrTheFieldOrTheDefaultOfAList) {
  EXPECT_EQ(ReadHfChatTemplates(folder_)->chat, "");
  Write("chat_template.json", R"({"chat_template": "P"})");
  EXPECT_EQ(ReadHfChatTemplates(folder_)->chat, "P");
  Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(ReadHfChatTemplates(folder_)->chat, "P");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "T"},
                                                       {"name": "default", "template": "D"}]})");
  EXPECT_EQ(ReadHfChatTemplates(folder_)->chat, "D");
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "C"})");
  EXPECT_EQ(ReadHfChatTemplates(folder_)->chat, "C");
  Write("chat_template.jinja", "J");
  const Result<ChatSource> chat = OpenChatSource(folder_);
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();
  EXPECT_EQ(chat->chat_template, "J");
  EXPECT_EQ(chat->bos_token, "<s>");
  EXPECT_EQ(chat->eos_token, "");
  std::filesystem::remove(folder_ + "/chat_template.jinja");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  EXPECT_THAT(ReadHfChatTemplates(folder_).status().ToString(), HasSubstr("chat_template"));
}

TEST_F(HfVocabTest, ChoosesAmongTemplatesAsTransformersDoes) {
  const auto golden = nlohmann::json::parse(
      std::ifstream(TOKAMAK_SOURCE_DIR "/tests/golden/chat/template_choice.json"));
  const auto messages = *ParseJson(golden["messages"].dump());
  const auto tools = *ParseJson(golden["tools"].dump());
  int compared = 0;
  for (const auto& choice : golden["cases"]) {
    SetUp();
    for (const auto& [name, text] : choice["files"].items()) {
      std::filesystem::create_directories(
          std::filesystem::path(folder_ + "/" + name).parent_path());
      Write(name, text.get<std::string>());
    }
    for (const bool with_tools : {false, true}) {
      const auto& expected = choice[with_tools ? "tools" : "plain"];
      if (expected.is_null()) continue;  // transformers refuses to choose
      const Result<ChatSource> chat = OpenChatSource(folder_);
      ASSERT_TRUE(chat.ok()) << chat.status().ToString();
      const auto source =
          ChatTemplate::Parse(chat->TemplateFor(with_tools), chat->bos_token, chat->eos_token);
      ASSERT_TRUE(source.ok()) << source.status().ToString() << choice.dump();
      ChatInput input = {.messages = messages};
      if (with_tools) input.tools = tools;
      EXPECT_EQ(*source->Render(input), expected.get<std::string>()) << choice.dump();
      ++compared;
    }
  }
  EXPECT_GT(compared, 60);
}

TEST_F(HfVocabTest, AFolderCalledChatTemplatesIsReadToo) {
  Write("chat_template.jinja", "D");
  std::filesystem::create_directories(folder_ + "/chat_templates");
  Write("chat_templates/tool_use.jinja", "T");
  EXPECT_EQ(ReadHfChatTemplates(folder_)->chat, "D");
  EXPECT_EQ(ReadHfChatTemplates(folder_)->tools, "T");
}

TEST_F(HfVocabTest, ReportsADirectoryWithoutATokenizer) {
  std::filesystem::remove(folder_ + "/tokenizer.json");
  EXPECT_EQ(HfTokenizerFile(folder_), "");
  EXPECT_THAT(OpenTokenizer(folder_).status().ToString(),
              HasSubstr("no tokenizer.json, tekken.json"));
}

// A small SentencePiece model in a directory; its special tokens are <unk>, <bos>, <eos>, <pad>.
class SentencePieceDirectoryTest : public HfVocabTest {
 protected:
  void SetUp() override {
    HfVocabTest::SetUp();
    std::filesystem::remove(folder_ + "/tokenizer.json");
    std::filesystem::copy_file(
        std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/sentencepiece/bpe_merged.model",
        folder_ + "/tokenizer.model");
    const auto alone = OpenTokenizer(folder_ + "/tokenizer.model");
    ASSERT_TRUE(alone.ok()) << alone.status().ToString();
    size_ = (*alone)->vocab_size();
    the_ = *(*alone)->Encode("the", {.add_special = false});
  }
  std::string Added(int id, const std::string& rest) {
    return "\"added_tokens_decoder\": {\"" + std::to_string(id) + "\": {" + rest + "}}";
  }
  std::string Error() { return OpenTokenizer(folder_).status().ToString(); }

  int size_ = 0;
  std::vector<int32_t> the_;  // "the", without special tokens
};

TEST_F(SentencePieceDirectoryTest, TheConfigurationSaysWhatTheModelLeavesOut) {
  std::vector<int32_t> expected = the_;
  expected.insert(expected.begin(), 1);  // <bos> is the default of families with such files
  EXPECT_EQ(Encode("the"), expected);
  Write("tokenizer_config.json",
        R"({"add_bos_token": false, "add_eos_token": true, "eos_token": "<|end|>", )" +
            Added(size_ + 2, R"("content": "<|end|>", "special": true)") + "}");
  expected = the_;
  expected.push_back(size_ + 2);
  EXPECT_EQ(Encode("the"), expected);
  const auto tokenizer = *OpenTokenizer(folder_);
  EXPECT_EQ(tokenizer->vocab_size(), size_ + 3);
  EXPECT_EQ(tokenizer->special().bos, 1);
  EXPECT_EQ(tokenizer->special().eos, size_ + 2);
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(size_ + 2));
  // It is plain text within a user's text.
  EXPECT_EQ(tokenizer->FindToken("<|end|>"), size_ + 2);
  EXPECT_THAT(*tokenizer->Encode("<|end|>", {.add_special = false, .parse_special = true}),
              ElementsAre(size_ + 2));
  EXPECT_THAT(*tokenizer->Encode("<|end|>", {.add_special = false}),
              Not(::testing::Contains(size_ + 2)));
}

TEST_F(SentencePieceDirectoryTest, AddedTokensThatAreNotSpecialAreFoundInEveryText) {
  Write("added_tokens.json",
        "{\"<x>\": " + std::to_string(size_) + ", \"<y>\": " + std::to_string(size_ + 1) + "}");
  Write("special_tokens_map.json", R"({"additional_special_tokens": ["<y>"]})");
  std::vector<int32_t> expected = the_;
  expected.insert(expected.begin(), {1, size_});
  EXPECT_EQ(Encode("<x>the"), expected);
  EXPECT_GT(Encode("<y>").size(), 2u);
}

TEST_F(SentencePieceDirectoryTest, RefusesFieldsThatContradictTheModel) {
  const auto with = [&](int id, const std::string& rest) {
    Write("tokenizer_config.json", "{" + Added(id, rest) + "}");
    return Error();
  };
  EXPECT_EQ(with(1, R"("content": "<s>", "special": true)"), "ok");  // renames a special token
  EXPECT_THAT(
      with(size_ - 1, R"("content": "<s>")"),
      HasSubstr("tokenizer_config.json: added_tokens_decoder." + std::to_string(size_ - 1)));
  EXPECT_THAT(with(90'000'000, R"("content": "<s>")"), HasSubstr("added_tokens_decoder.90000000"));
  EXPECT_THAT(with(size_, R"("special": true)"), HasSubstr("content"));
  EXPECT_THAT(with(size_, R"("content": "a", "special": 1)"), HasSubstr("special"));
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  EXPECT_THAT(Error(), HasSubstr("added_tokens_decoder"));
  Write("tokenizer_config.json", R"({"eos_token": "<other>"})");
  EXPECT_THAT(Error(), HasSubstr("tokenizer_config.json: eos_token: the tokenizer has no token"));
  std::filesystem::remove(folder_ + "/tokenizer_config.json");
  Write("added_tokens.json", R"({"<x>": -1})");
  EXPECT_THAT(Error(), HasSubstr("added_tokens.json: \"<x>\""));
}

TEST_F(HfVocabTest, ATokenizerJsonCountsBeforeOtherFilesAndOneTiktokenFileAfterThem) {
  for (const char* name :
       {"qwen.tiktoken", "tiktoken.model", "spiece.model", "tokenizer.model", "tekken.json"}) {
    Write(name, "");
  }
  for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model",
                           "tiktoken.model", "qwen.tiktoken"}) {
    EXPECT_EQ(HfTokenizerFile(folder_), folder_ + "/" + name);
    EXPECT_EQ(OpenTokenizer(folder_).ok(), name == std::string("tokenizer.json"));
    if (name != std::string("tokenizer.json")) {
      EXPECT_THAT(OpenTokenizer(folder_).status().ToString(), HasSubstr(name));
    }
    std::filesystem::remove(folder_ + "/" + name);
  }
  Write("a.tiktoken", "");
  Write("b.tiktoken", "");
  EXPECT_EQ(HfTokenizerFile(folder_), "");
}

}  // namespace
}  // namespace tokamak
