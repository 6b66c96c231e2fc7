#include "tokenizer/tekken.h"

#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "tokenizer/ranked_vocab.h"
#include "tokenizer/tokenizer_reader.h"

namespace tokamak {
namespace {

constexpr int64_t kMaxTokens = 1 << 24;

// For files that do not list them, which are version 7 or older.
constexpr const char* kDefaultSpecial[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};

class Reader {
 public:
  Reader(const JsonReader& root, RankedVocab& ranked) : root_(root), ranked_(ranked) {}

  void Read() {
    const JsonReader config = root_["config"];
    config.Only({"pattern", "num_vocab_tokens", "default_vocab_size", "default_num_special_tokens",
                 "version"});
    ranked_.pattern = config["pattern"].String();
    const std::string version = config["version"].String();
    bool known = false;
    for (const char* name : {"v1", "v2", "v3", "v7", "v11", "v13", "v15"}) known |= version == name;
    if (root_.ok() && !known) return Unsupported(config["version"], version);
    const int64_t size = config["default_vocab_size"].Int(1, kMaxTokens);
    const int64_t special = config["default_num_special_tokens"].Int(0, size);
    if (!root_.ok()) return;
    ReadRanks(root_["vocab"], static_cast<size_t>(size - special));
    if (root_.ok()) ReadSpecial(static_cast<int32_t>(special), version);
    ranked_.first_id = static_cast<int32_t>(special);
  }

 private:
  void ReadRanks(const JsonReader& vocab, size_t count) {
    if (vocab.Size() < count) {
      return vocab.Bad(
          fmt::format("at least {} tokens (default_vocab_size less "
                      "default_num_special_tokens), got {}",
                      count, vocab.value().size()));
    }
    ranked_.tokens.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const JsonValue& item = (*vocab.value().AsArray())[i];
      const JsonValue* rank = item.Find("rank");
      if (rank == nullptr || rank->AsInt() != static_cast<int64_t>(i)) {
        return vocab[i]["rank"].Bad(fmt::format("{}, because ranks ascend without gaps", i));
      }
      const JsonValue* bytes = item.Find("token_bytes");
      const std::string* base64 = bytes == nullptr ? nullptr : bytes->AsString();
      if (base64 == nullptr || !DecodeBase64(*base64, ranked_.tokens[i])) {
        return vocab[i]["token_bytes"].Bad("base64");
      }
    }
  }

  // Ids without a token get generated names.
  void ReadSpecial(int32_t count, const std::string& version) {
    std::vector<std::string> names(static_cast<size_t>(count));
    if (root_.Has("special_tokens")) {
      const JsonReader list = root_["special_tokens"];
      for (size_t i = 0; i < list.Size() && root_.ok(); ++i) {
        const JsonReader item = list[i];
        item.Only({"rank", "token_str", "is_control"});
        const auto rank = static_cast<size_t>(item["rank"].Int(0, int64_t{count} - 1));
        const std::string name = item["token_str"].String();
        if (!root_.ok()) return;
        if (name.empty()) return item["token_str"].Bad("a token that is not empty");
        if (!names[rank].empty()) return item["rank"].Bad("a rank that no other token has");
        names[rank] = name;
      }
    } else if (version == "v11" || version == "v13" || version == "v15") {
      return root_["special_tokens"].Bad("a list, as in all files of this version");
    } else {
      for (size_t i = 0; i < std::size(kDefaultSpecial) && i < names.size(); ++i) {
        names[i] = kDefaultSpecial[i];
      }
    }
    for (int32_t id = 0; id < count; ++id) {
      std::string& name = names[static_cast<size_t>(id)];
      if (name.empty()) name = fmt::format("<SPECIAL_{}>", id);
      ranked_.special.emplace_back(id, std::move(name));
    }
  }

  const JsonReader root_;
  RankedVocab& ranked_;
};

}  // namespace

Result<VocabSpec> ParseTekken(std::string_view json, const std::string& source) {
  ASSIGN_OR_RETURN(const JsonValue file, ParseTokenizerObject(json, source));
  const JsonReader root = ReadTokenizerObject(file, source);
  RankedVocab ranked;
  Reader(root, ranked).Read();
  RETURN_IF_ERROR(root.status());
  ASSIGN_OR_RETURN(VocabSpec vocab, MakeRankedVocab(ranked, source));
  SpecialTokenIds& special = vocab.special;
  const std::pair<const char*, int32_t*> roles[] = {{"<unk>", &special.unk},
                                                    {"<s>", &special.bos},
                                                    {"</s>", &special.eos},
                                                    {"<pad>", &special.pad}};
  for (const auto& [id, name] : ranked.special) {
    for (const auto& [role, place] : roles) {
      if (name == role) *place = id;
    }
  }
  vocab.add_bos = special.bos >= 0;
  return vocab;
}

}  // namespace tokamak
