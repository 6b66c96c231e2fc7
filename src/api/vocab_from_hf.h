// The tokenizer and the chat template of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// The file of the directory's tokenizer: tokenizer.json, or else tekken.json, tokenizer.model,
// spiece.model, tiktoken.model, or the one *.tiktoken. Empty when there is none. What is in the
// file is told by its content.
std::string HfTokenizerFile(const std::string& folder);

// That file, with the roles of tokens from tokenizer_config.json or special_tokens_map.json and,
// where it is no tokenizer.json, the tokens that those add to it. `end_tokens` are further tokens
// after which generation stops. Errors name the file and the field.
Result<VocabSpec> VocabFromHf(const std::string& folder, const std::vector<int32_t>& end_tokens);

// A tokenizer's file alone, of any format, with what it says itself.
Result<VocabSpec> VocabFromTokenizerFile(const std::string& path);

// The templates of a directory that transformers renders conversations with.
struct HfChatTemplates {
  std::string chat;   // empty: there is none
  std::string tools;  // for conversations with tools; empty: the other one
};

// Reads chat_template.jinja and additional_chat_templates/tool_use.jinja (chat_templates/, too).
// Without the former, the field chat_template of tokenizer_config.json or else chat_template.json
// counts: a template, or a list of named ones of which "default" and "tool_use" are taken.
Result<HfChatTemplates> ReadHfChatTemplates(const std::string& folder);

}  // namespace tokamak
