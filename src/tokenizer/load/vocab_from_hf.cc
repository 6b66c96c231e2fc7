#include "tokenizer/load/vocab_from_hf.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "tokenizer/load/hf_added_tokens.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/tokenizer_file.h"
#include "weights/config.h"

namespace tokamak {
namespace {

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

// Null if the file does not exist.
Result<JsonValue> ReadConfigIfAny(const std::string& path) {
  if (!FileExists(path)) return JsonValue();
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxConfigBytes));
  return ParseConfigJson(text, path);
}

// A token's spelling, from "</s>" or {"content": "</s>", ...}. Null if there is none.
const std::string* Spelling(const JsonValue* value) {
  if (value == nullptr) return nullptr;
  if (const JsonValue* content = value->Find("content")) return content->AsString();
  return value->AsString();
}

Status ReadRoles(const std::string& path, const JsonValue& config, VocabSpec& vocab) {
  SpecialTokenIds& s = vocab.special;
  const std::pair<const char*, int32_t*> roles[] = {
      {"bos_token", &s.bos}, {"eos_token", &s.eos},   {"pad_token", &s.pad}, {"cls_token", &s.cls},
      {"sep_token", &s.sep}, {"mask_token", &s.mask}, {"unk_token", &s.unk}};
  for (const auto& [name, id] : roles) {
    const JsonValue* value = config.Find(name);
    if (*id >= 0 || value == nullptr || value->is_null()) continue;
    const std::string* spelling = Spelling(value);
    if (spelling == nullptr) {
      return InvalidArgument("{}: {}: expected a token, got {}", path, name, value->ToString());
    }
    const auto it = std::find(vocab.tokens.begin(), vocab.tokens.end(), *spelling);
    if (it != vocab.tokens.end()) {
      *id = static_cast<int32_t>(it - vocab.tokens.begin());
    } else if (id == &s.bos || id == &s.eos) {
      return InvalidArgument("{}: {}: the tokenizer has no token {}", path, name,
                             Quoted(*spelling));
    }
  }
  return Status();
}

// Like the reference: if either flag is given, the two alone decide what surrounds a text.
Status ApplyAddTokens(const std::string& path, const JsonValue& config, VocabSpec& vocab) {
  bool stated = false, add[2] = {false, false};
  const char* names[2] = {"add_bos_token", "add_eos_token"};
  for (int i = 0; i < 2; ++i) {
    const JsonValue* value = config.Find(names[i]);
    if (value == nullptr || value->is_null()) continue;
    const std::optional<bool> flag = value->AsBool();
    if (!flag) return InvalidArgument("{}: {}: expected true or false", path, names[i]);
    stated = true;
    add[i] = *flag;
  }
  if (!stated) return Status();
  vocab.pipeline.before.clear();
  vocab.pipeline.after.clear();
  if (add[0] && vocab.special.bos >= 0) vocab.pipeline.before = {vocab.special.bos};
  if (add[1] && vocab.special.eos >= 0) vocab.pipeline.after = {vocab.special.eos};
  return Status();
}

// "tokenization_kimi.TikTokenTokenizer" if the checkpoint has its own code, or else
// "LlamaTokenizer". Empty if neither is given.
std::string TokenizerClass(const JsonValue& config) {
  const JsonValue* name = config.Find("tokenizer_class");
  if (const JsonValue* map = config.Find("auto_map")) {
    const JsonValue* names = map->Find("AutoTokenizer");
    const JsonValue::Array* list = names != nullptr ? names->AsArray() : nullptr;
    if (list != nullptr && !list->empty() && list->front().AsString() != nullptr) {
      name = &list->front();
    } else if (names != nullptr && names->AsString() != nullptr) {
      name = names;
    }
  }
  const std::string* text = name != nullptr ? name->AsString() : nullptr;
  if (text == nullptr) return "";
  const size_t repository = text->find("--");  // "owner/name--module.Class"
  return repository == std::string::npos ? *text : text->substr(repository + 2);
}

// Adds the roles that the configuration does not give, and the default begin token.
void TakeOwnRoles(SpecialTokenIds own, VocabSpec& vocab) {
  SpecialTokenIds& s = vocab.special;
  const std::pair<int32_t, int32_t*> roles[] = {
      {own.bos, &s.bos}, {own.eos, &s.eos}, {own.pad, &s.pad}};
  for (const auto& [from, to] : roles) {
    if (*to < 0) *to = from;
  }
  if (vocab.add_bos && s.bos >= 0) vocab.pipeline.before = {s.bos};
}

}  // namespace

std::string HfTokenizerFile(const std::string& folder) {
  for (const char* name :
       {"tokenizer.json", "tekken.json", "tokenizer.model", "spiece.model", "tiktoken.model"}) {
    std::string path = folder + "/" + name;
    if (FileExists(path)) return path;
  }
  std::string found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".tiktoken") continue;
    if (!found.empty()) return "";  // ambiguous
    found = entry.path();
  }
  return found;
}

Result<VocabSpec> VocabFromHf(const std::string& folder, const std::vector<int32_t>& end_tokens) {
  const std::string path = HfTokenizerFile(folder);
  if (path.empty()) {
    return Unimplemented(
        "{}: there is no tokenizer.json, tekken.json, tokenizer.model, "
        "spiece.model, tiktoken.model, nor one *.tiktoken",
        folder);
  }
  const std::string config_path = folder + "/tokenizer_config.json";
  ASSIGN_OR_RETURN(const JsonValue config, ReadConfigIfAny(config_path));
  const std::string map_path = folder + "/special_tokens_map.json";
  ASSIGN_OR_RETURN(const JsonValue map, ReadConfigIfAny(map_path));
  ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, kMaxTokenizerBytes));
  ASSIGN_OR_RETURN(VocabSpec vocab, ParseTokenizerFile(bytes, path, TokenizerClass(config)));
  // A tokenizer.json is complete and decides. Other files hold only a vocabulary: the configuration
  // adds the rest, and their own roles are the fallback.
  const bool complete = path.ends_with("/tokenizer.json");
  const SpecialTokenIds own = vocab.special;
  if (!complete) {
    RETURN_IF_ERROR(ApplyHfAddedTokens(folder, config, map, vocab));
    vocab.special = {};
    vocab.special.unk = own.unk;
  }
  RETURN_IF_ERROR(ReadRoles(config_path, config, vocab));
  RETURN_IF_ERROR(ReadRoles(map_path, map, vocab));
  if (!complete) TakeOwnRoles(own, vocab);
  RETURN_IF_ERROR(ApplyAddTokens(config_path, config, vocab));
  for (const int32_t id : end_tokens) {
    // A model may have more rows than its tokenizer has tokens.
    if (static_cast<size_t>(id) < vocab.tokens.size()) vocab.end_tokens.push_back(id);
  }
  return vocab;
}

Result<VocabSpec> VocabFromTokenizerFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, kMaxTokenizerBytes));
  ASSIGN_OR_RETURN(VocabSpec vocab, ParseTokenizerFile(bytes, path));
  TakeOwnRoles(vocab.special, vocab);
  return vocab;
}

namespace {

// Reads the first file that exists; nullopt if none does.
Result<std::optional<std::string>> ReadFirst(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!FileExists(path)) continue;
    ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path, kMaxTemplateBytes));
    return std::optional(std::move(text));
  }
  return std::optional<std::string>();
}

// Reads a configuration's field chat_template.
Result<HfChatTemplates> ParseTemplates(const JsonValue& value, const std::string& path) {
  HfChatTemplates templates;
  if (const std::string* text = value.AsString()) {
    templates.chat = *text;
    return templates;
  }
  bool found = false;
  if (const JsonValue::Array* list = value.AsArray()) {
    for (const JsonValue& item : *list) {
      const JsonValue* name = item.Find("name");
      const JsonValue* text = item.Find("template");
      if (name == nullptr || name->AsString() == nullptr) continue;
      if (text == nullptr || text->AsString() == nullptr) continue;
      const bool tools = *name->AsString() == "tool_use";
      if (!tools && *name->AsString() != "default") continue;
      (tools ? templates.tools : templates.chat) = *text->AsString();
      found = true;
    }
  }
  if (found) return templates;
  return InvalidArgument(
      "{}: chat_template: expected a template, or a list that contains one named \"default\"",
      path);
}

}  // namespace

Result<HfChatTemplates> ReadHfChatTemplates(const std::string& folder) {
  ASSIGN_OR_RETURN(std::optional<std::string> chat, ReadFirst({folder + "/chat_template.jinja"}));
  ASSIGN_OR_RETURN(std::optional<std::string> tools,
                   ReadFirst({folder + "/additional_chat_templates/tool_use.jinja",
                              folder + "/chat_templates/tool_use.jinja"}));
  HfChatTemplates templates;
  if (chat) {
    templates.chat = *std::move(chat);
  } else {
    // Models with images have the second file.
    for (const char* name : {"/tokenizer_config.json", "/chat_template.json"}) {
      ASSIGN_OR_RETURN(const JsonValue config, ReadConfigIfAny(folder + name));
      const JsonValue* value = config.Find("chat_template");
      if (value == nullptr || value->is_null()) continue;
      ASSIGN_OR_RETURN(templates, ParseTemplates(*value, folder + name));
      break;
    }
  }
  if (tools) templates.tools = *std::move(tools);
  return templates;
}

}  // namespace tokamak
