// Requests to /v1/completions and /v1/chat/completions, read from their JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "chat/chat_template.h"
#include "server/openai/other_fields.h"
#include "tokamak/request.h"

namespace tokamak {

using PromptInput = std::variant<std::string, std::vector<int32_t>>;  // text, or token ids

struct CompletionRequest {
  bool chat = false;
  std::string model;                 // empty: whichever is served
  std::vector<PromptInput> prompts;  // completions: at least one
  bool prompt_list = false;          // they came as a list, even if of one
  // Chat: at least one message, as the client sent it but for contents, which are text or null, and
  // the role "developer", which is "system". Tools are None unless the model may call them.
  ChatInput conversation;
  SamplingParams sampling;
  bool max_tokens_given = false;  // by the client; else it is a default
  int32_t priority = 0;
  std::string cache_salt;
  bool add_special_tokens = true;
  bool stream = false;
  bool include_usage = false;       // stream_options: a last chunk with the usage
  bool echo = false;                // completions: the prompt comes first in the text
  bool return_token_ids = false;    // extension: token_ids beside the text
  bool timings = false;             // extension: where the time went, beside the usage
  bool parallel_tool_calls = true;  // chat: false: only the first call is of interest
  // Extension: prompt_logprobs were asked for by that name. An echo with logprobs needs them too.
  bool return_prompt_logprobs = false;
  std::vector<std::string> unknown_fields;  // of the body: they were ignored
  FieldSpellings spellings;                 // of those that were not
};

// Parse errors are kInvalidArgument whose message starts with the JSON path of the field at fault
// ("messages[2].content[0].type: ..."), or has none where the body as a whole is wrong. Fields that
// nobody knows are ignored; those that this server cannot honor are errors (other_fields.h). Values
// of the sampling fields are checked for type and representability only; Validate checks their
// ranges. `defaults` are what a field has that the client leaves out.
Result<CompletionRequest> ParseCompletionRequest(const std::string& body,
                                                 const SamplingDefaults& defaults = {});
Result<CompletionRequest> ParseChatRequest(const std::string& body,
                                           const SamplingDefaults& defaults = {});

// The fields that the body of a chat or completion request may have.
std::vector<std::string> KnownFields(bool chat);

}  // namespace tokamak
