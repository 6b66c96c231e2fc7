#include "tokenizer/load/hf_added_tokens.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;
// Gaps between ids cost memory.
constexpr size_t kMaxGap = size_t{1} << 16;

class Adder {
 public:
  Adder(std::string place, VocabSpec& vocab) : place_(std::move(place)), vocab_(vocab) {}

  Status Add(AddedToken token, const std::string& spelling) {
    const auto at = static_cast<size_t>(token.id);
    PipelineSpec& pipeline = vocab_.pipeline;
    if (spelling.empty()) return Bad(token.id, "the token is empty");
    if (token.id < 0 || at >= vocab_.tokens.size() + kMaxGap) {
      return Bad(token.id, fmt::format("the vocabulary has {} tokens", vocab_.tokens.size()));
    }
    if (at >= vocab_.tokens.size()) {
      vocab_.tokens.resize(at + 1);
      vocab_.types.resize(at + 1, TokenType::kUnused);
      pipeline.in_model.resize(at + 1);
      if (!pipeline.scores.empty()) pipeline.scores.resize(at + 1);
    }
    TokenType& type = vocab_.types[at];
    if (vocab_.tokens[at] != spelling) {
      if (type == TokenType::kNormal || type == TokenType::kByte) {
        return Bad(token.id, fmt::format("{} is already the name of token {}", Quoted(spelling),
                                         Quoted(vocab_.tokens[at])));
      }
      vocab_.tokens[at] = spelling;
      pipeline.in_model[at] = false;
    }
    if (type != TokenType::kUnknown) {
      type = token.special ? TokenType::kControl : TokenType::kUserDefined;
    }
    const auto same = std::find_if(pipeline.added.begin(), pipeline.added.end(),
                                   [&](const AddedToken& other) { return other.id == token.id; });
    if (same == pipeline.added.end()) {
      pipeline.added.push_back(token);
    } else {
      token.normalized = same->normalized;
      *same = token;
    }
    return Status();
  }

  Status Bad(int64_t id, const std::string& what) const {
    return InvalidArgument("{}.{}: {}", place_, id, what);
  }

 private:
  const std::string place_;
  VocabSpec& vocab_;
};

// {"32000": {"content": "<|end|>", "special": true, ...}, ...}
Status AddDecoderTokens(const std::string& path, const JsonValue& tokens, VocabSpec& vocab) {
  const JsonValue::Object* object = tokens.AsObject();
  const std::string place = path + ": added_tokens_decoder";
  if (object == nullptr) return InvalidArgument("{}: expected an object", place);
  Adder adder(place, vocab);
  for (const auto& [key, value] : *object) {
    AddedToken token;
    const char* end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data(), end, token.id);
    if (error != std::errc() || stop != end || token.id < 0) {
      return InvalidArgument("{}: {} is not the id of a token", place, Quoted(key));
    }
    const JsonValue* content = value.Find("content");
    if (content == nullptr || content->AsString() == nullptr) {
      return adder.Bad(token.id, "content: expected a token");
    }
    const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                   {"single_word", &token.single_word},
                                                   {"lstrip", &token.lstrip},
                                                   {"rstrip", &token.rstrip}};
    for (const auto& [name, flag] : flags) {
      const JsonValue* stated = value.Find(name);
      if (stated == nullptr || stated->is_null()) continue;
      const std::optional<bool> is = stated->AsBool();
      if (!is) return adder.Bad(token.id, fmt::format("{}: expected true or false", name));
      *flag = *is;
    }
    RETURN_IF_ERROR(adder.Add(token, *content->AsString()));
  }
  return Status();
}

// The spellings of tokens with a role; these are special.
std::set<std::string, std::less<>> RoleNames(const JsonValue& config, const JsonValue& map) {
  std::set<std::string, std::less<>> names;
  const auto add = [&](const JsonValue& value) {
    const JsonValue* content = value.Find("content");
    const std::string* text = content != nullptr ? content->AsString() : value.AsString();
    if (text != nullptr) names.insert(*text);
  };
  for (const JsonValue* file : {&config, &map}) {
    for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                             "cls_token", "mask_token"}) {
      if (const JsonValue* value = file->Find(role)) add(*value);
    }
    const JsonValue* more = file->Find("additional_special_tokens");
    const JsonValue::Array* list = more != nullptr ? more->AsArray() : nullptr;
    if (list == nullptr) continue;
    for (const JsonValue& value : *list) add(value);
  }
  return names;
}

}  // namespace

Status ApplyHfAddedTokens(const std::string& folder, const JsonValue& config, const JsonValue& map,
                          VocabSpec& vocab) {
  const JsonValue* decoder = config.Find("added_tokens_decoder");
  if (decoder != nullptr && !decoder->is_null()) {
    return AddDecoderTokens(folder + "/tokenizer_config.json", *decoder, vocab);
  }
  const std::string path = folder + "/added_tokens.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Status();
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  ASSIGN_OR_RETURN(const JsonValue tokens, ParseConfigJson(text, path));
  const auto roles = RoleNames(config, map);
  Adder adder(path + ": ", vocab);
  for (const auto& [name, value] : *tokens.AsObject()) {
    const std::optional<int64_t> id = value.AsInt();
    if (!id || *id < 0 || *id > INT32_MAX) {
      return InvalidArgument("{}: {}: expected a token's id, got {}", path, Quoted(name),
                             value.ToString());
    }
    AddedToken token;
    token.id = static_cast<int32_t>(*id);
    token.special = roles.contains(name);
    RETURN_IF_ERROR(adder.Add(token, name));
  }
  return Status();
}

}  // namespace tokamak
