// Reads the tokenizer and chat templates of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// The tokenizer file of a directory: tokenizer.json, or else tekken.json, tokenizer.model,
// spiece.model, tiktoken.model, or the only *.tiktoken. Empty if there is none. The format is
// detected from the content.
std::string HfTokenizerFile(const std::string& folder);

// Reads that file, and the roles of tokens from tokenizer_config.json or special_tokens_map.json.
// Unless the file is a tokenizer.json, also the tokens that those files add. `end_tokens` are
// further tokens that end a generation. Errors name the file and the field.
Result<VocabSpec> VocabFromHf(const std::string& folder, const std::vector<int32_t>& end_tokens);

// Reads only a tokenizer file, of any format.
Result<VocabSpec> VocabFromTokenizerFile(const std::string& path);

// The templates with which transformers renders conversations.
struct HfChatTemplates {
  std::string chat;   // empty: none
  std::string tools;  // for conversations with tools; empty: use chat
};

// Reads chat_template.jinja and additional_chat_templates/tool_use.jinja (or in chat_templates/).
// Without chat_template.jinja, uses the field chat_template of tokenizer_config.json or else
// chat_template.json: a template, or a list of named ones ("default" and "tool_use").
Result<HfChatTemplates> ReadHfChatTemplates(const std::string& folder);

}  // namespace tokamak
