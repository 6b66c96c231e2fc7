#include "invariance/golden_model.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "tokenizer/byte_alphabet.h"

namespace tokamak::invariance {
namespace {

using Json = nlohmann::json;

constexpr char kGoldens[] = TOKAMAK_SOURCE_DIR "/tests/golden/";
constexpr size_t kMaxFileBytes = 1 << 20;

constexpr GoldenModel kModels[] = {
    {.name = "llava_64", .images = true},
    {.name = "llava_odd", .images = true},
    {.name = "llava_siglip", .images = true},
    // At least twice the tokens of an image in a step.
    {.name = "gemma3_vision_odd", .images = true, .cache_groups = 2, .least_batch_tokens = 18},
    {.name = "qwen35_odd", .states = true},
    {.name = "qwen35_vl_odd", .images = true, .states = true},
};

constexpr int32_t kPlaceholder = 126;  // of the golden models; token 1 ends an answer

// Words are built from left to right, one merge per character.
constexpr std::string_view kWords[] = {"the", " the", "cat", " cat", "ing", "aaaa", "12"};

class Vocabulary {
 public:
  explicit Vocabulary(int32_t size) : size_(size) {
    AddSpecial("<0>");
    AddSpecial("</s>");
    for (char c = ' '; c <= '~'; ++c) Add(EncodeByteAlphabet({&c, 1}));
    Add(EncodeByteAlphabet("\n"));
    for (const std::string_view word : kWords) AddWord(word);
    while (next_ < size_)
      AddSpecial(next_ == kPlaceholder ? "<image>" : fmt::format("<{}>", next_));
  }

  Json TokenizerJson() const {
    const Json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", true}};
    const Json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"fuse_unk", false},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"vocab", ids_},
                        {"merges", merges_}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added_},
            {"normalizer", nullptr},
            {"post_processor", nullptr},
            {"pre_tokenizer", byte_level},
            {"decoder", byte_level},
            {"model", model}};
  }

 private:
  void Add(const std::string& token) {
    if (ids_.emplace(token, next_).second) ++next_;
  }

  void AddSpecial(const std::string& token) {
    added_.push_back({{"id", next_},
                      {"content", token},
                      {"special", true},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false}});
    ids_.emplace(token, next_++);
  }

  void AddWord(std::string_view word) {
    std::string left = EncodeByteAlphabet(word.substr(0, 1));
    for (size_t i = 1; i < word.size(); ++i) {
      const std::string right = EncodeByteAlphabet(word.substr(i, 1));
      const std::string joined = left + right;
      if (!ids_.contains(joined)) merges_.push_back(left + " " + right);
      Add(joined);
      left = joined;
    }
  }

  const int32_t size_;
  int32_t next_ = 0;
  std::map<std::string, int32_t> ids_;
  std::vector<std::string> merges_;
  Json added_ = Json::array();
};

Status WriteJson(const Json& json, const std::string& path) {
  std::ofstream file(path);
  file << json.dump();
  file.close();
  return file ? Status() : Unavailable("{}: cannot be written", path);
}

}  // namespace

Result<GoldenModel> FindGoldenModel(const std::string& name) {
  for (const GoldenModel& model : kModels) {
    if (model.name == name) return model;
  }
  return InvalidArgument("no golden model \"{}\"", name);
}

Status WriteGoldenModel(const GoldenModel& model, const std::string& path) {
  const std::string golden = kGoldens + fmt::format("hf/{}/", model.name);
  std::error_code error;
  std::filesystem::create_directory(path, error);
  std::vector<const char*> files = {"config.json", "model.safetensors"};
  if (model.images) files.push_back("preprocessor_config.json");
  for (const char* file : files) {
    if (!error) std::filesystem::create_symlink(golden + file, path + "/" + file, error);
  }
  if (error) return Unavailable("{}: {}", path, error.message());
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(golden + "config.json", kMaxFileBytes));
  const Json config = Json::parse(text);
  const Json& text_model = model.images ? config["text_config"] : config;
  const Vocabulary vocabulary(text_model["vocab_size"].get<int32_t>());
  RETURN_IF_ERROR(WriteJson(vocabulary.TokenizerJson(), path + "/tokenizer.json"));
  return WriteJson({{"tokenizer_class", "GPT2Tokenizer"}, {"add_bos_token", false}},
                   path + "/tokenizer_config.json");
}

Result<std::vector<std::string>> Pictures() {
  std::vector<std::string> pictures;
  for (const char* name : {"rgb.png", "gray.jpg", "lossy.webp", "one_pixel.png", "plain.gif"}) {
    ASSIGN_OR_RETURN(std::string bytes,
                     ReadWholeFile(kGoldens + ("images/" + std::string(name)), kMaxFileBytes));
    pictures.push_back(std::move(bytes));
  }
  return pictures;
}

}  // namespace tokamak::invariance
