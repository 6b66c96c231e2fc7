#include "tokenizer/special_tokens.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>

namespace tokamak {
namespace {

// Names of tokens that end generation, the likeliest end of a turn first, because a vocabulary may
// have several. Some (kMaybeText) are also markup that vocabularies hold as ordinary tokens; they
// count only if the checkpoint marks them as special. "<|end|>" and "</s>" have exceptions below.
struct EndName {
  enum Use { kEndsTurn = 1, kMaybeText = 2 };
  std::string_view name;
  int use = 0;
};
constexpr EndName kEndNames[] = {{"<|eot_id|>", EndName::kEndsTurn},
                                 {"<|im_end|>", EndName::kEndsTurn},
                                 {"<|end|>", EndName::kEndsTurn},
                                 {"<end_of_turn>", EndName::kEndsTurn},
                                 {"<|endoftext|>", EndName::kEndsTurn},
                                 {"<|end_of_text|>", EndName::kEndsTurn},
                                 {"<EOT>", EndName::kEndsTurn | EndName::kMaybeText},
                                 {"_<EOT>", EndName::kEndsTurn | EndName::kMaybeText},
                                 {"[EOT]", EndName::kEndsTurn | EndName::kMaybeText},
                                 {"<｜end▁of▁sentence｜>", EndName::kEndsTurn},
                                 {"<end_of_utterance>", EndName::kEndsTurn},
                                 {"<|eom_id|>"},
                                 {"<|return|>"},
                                 {"<|call|>"},
                                 {"<|calls|>"},
                                 {"<|flush|>"},
                                 {"<|tool_response>"},
                                 {"<turn|>"},
                                 {"</s>", EndName::kMaybeText},
                                 {"<eos>", EndName::kMaybeText},
                                 {"[EOS]", EndName::kMaybeText},
                                 {"[e~[", EndName::kMaybeText}};

// Tokens that give o200k_harmony's messages their structure. They are shown, although checkpoints
// mark them as control tokens.
constexpr std::string_view kShownNames[] = {"<|channel|>", "<|message|>", "<|start|>",
                                            "<|constrain|>"};

// The names above that occur in a vocabulary, with their ids.
class NamedTokens {
 public:
  explicit NamedTokens(const VocabSpec& spec) {
    std::unordered_map<std::string_view, int32_t> wanted;
    std::array<bool, 256> first_bytes{};  // of the names: spares the search for most tokens
    const auto want = [&](std::string_view name) {
      wanted.emplace(name, -1);
      first_bytes[static_cast<uint8_t>(name[0])] = true;
    };
    for (const auto& end : kEndNames) want(end.name);
    for (const auto name : kShownNames) want(name);
    want("<|plamo:eos|>");
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      const std::string& token = spec.tokens[id];
      if (token.empty() || !first_bytes[static_cast<uint8_t>(token[0])]) continue;
      const auto it = wanted.find(token);
      if (it != wanted.end() && it->second < 0) it->second = static_cast<int32_t>(id);
    }
    ids_ = std::move(wanted);
  }
  int32_t operator[](std::string_view name) const {
    const auto it = ids_.find(name);
    return it == ids_.end() ? -1 : it->second;
  }
  bool Has(std::string_view name) const { return (*this)[name] >= 0; }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace

std::vector<int32_t> ResolveSpecialTokens(VocabSpec& spec) {
  const NamedTokens named(spec);
  SpecialTokenIds& special = spec.special;
  const auto set_type = [&](int32_t id, TokenType type) {
    if (id >= 0) spec.types[id] = type;
  };
  std::vector<int32_t> end;
  // If </s> is ordinary markup, the vocabulary has another end token.
  const bool plain_s = named.Has("<|tool_response>") || named.Has("<|plamo:eos|>");
  // If messages end with <|return|> or <|flush|>, <|end|> only separates their parts.
  const bool calls = named.Has("<|call|>") || named.Has("<|calls|>");
  const bool plain_end =
      calls && ((named.Has("<|return|>") && named.Has("<|call|>")) || named.Has("<|flush|>"));
  for (const auto& [name, use] : kEndNames) {
    const int32_t id = named[name];
    if (id < 0) continue;
    if ((use & EndName::kMaybeText) && spec.types[id] == TokenType::kNormal) continue;
    if (name == "</s>" && plain_s && id != special.eos) {
      set_type(id, TokenType::kNormal);
      continue;
    }
    if (name == "<|end|>" && plain_end) {
      set_type(id, TokenType::kUserDefined);
      continue;
    }
    set_type(id, TokenType::kControl);
    end.push_back(id);
    if ((use & EndName::kEndsTurn) && special.eot < 0) special.eot = id;
    if (name == "<|eom_id|>" && special.eom < 0) special.eom = id;
  }
  for (const auto name : kShownNames) set_type(named[name], TokenType::kUserDefined);
  for (const int32_t id : {special.eos, special.eot, special.eom}) {
    if (id >= 0) end.push_back(id);
  }
  end.insert(end.end(), spec.end_tokens.begin(), spec.end_tokens.end());
  std::sort(end.begin(), end.end());
  end.erase(std::unique(end.begin(), end.end()), end.end());
  return end;
}

}  // namespace tokamak
