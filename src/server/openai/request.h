// Requests to /v1/completions and /v1/chat/completions, read from their JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "server/openai/conversation_fields.h"
#include "server/openai/json_fields.h"
#include "server/openai/other_fields.h"
#include "tokamak/request.h"

namespace tokamak {

struct CompletionRequest {
  bool chat = false;
  std::string model;                 // empty: the one that is served
  std::vector<PromptInput> prompts;  // completions: at least one
  bool prompt_list = false;          // the client sent a list, perhaps of one
  // Chat: at least one message. The role "developer" has become "system", and parts with images
  // {"type": "image"}; everything else is as the client sent it. Tools are None unless the model
  // may call them.
  ChatInput conversation;
  std::vector<MessageImage> images;  // chat: in the order of the conversation
  SamplingParams sampling;
  bool max_tokens_given = false;  // by the client; false: it is a default
  bool thinking_budget_given = false;
  int32_t priority = 0;
  std::string cache_salt;
  bool speculate = true;
  bool add_special_tokens = true;
  bool stream = false;
  bool include_usage = false;        // stream_options: the last chunk has the usage
  bool echo = false;                 // completions: the text starts with the prompt
  bool return_token_ids = false;     // extension: adds token_ids to the text
  bool timings = false;              // extension: adds times to the usage
  bool parallel_tool_calls = true;   // chat; false: only the first call is sent
  std::vector<HeldTool> held_tools;  // chat: calls keep to their schemas
  bool must_call = false;            // chat: the answer calls one of held_tools
  // Extension: the client asked for prompt_logprobs by that name. An echo with logprobs needs them
  // too.
  bool return_prompt_logprobs = false;
  std::vector<std::string> unknown_fields;  // they were ignored
  FieldSpellings spellings;                 // of the other fields
};

// Parse errors are kInvalidArgument. The message starts with the JSON path of the field at fault
// ("messages[2].content[0].type: ..."), unless the body as a whole is wrong. Unknown fields are
// ignored; known fields that this server cannot honor are errors (other_fields.h). Sampling fields
// are checked only for type and representability here; Validate checks their ranges. `defaults` are
// the values of absent fields, and `images` those that the model takes, if any.
Result<CompletionRequest> ParseCompletionRequest(const std::string& body,
                                                 const SamplingDefaults& defaults = {});
Result<CompletionRequest> ParseChatRequest(const std::string& body,
                                           const SamplingDefaults& defaults = {},
                                           const std::optional<ImageInfo>& images = {});

// Returns the fields that the body of a chat or completion request may have.
std::vector<std::string> KnownFields(bool chat);

}  // namespace tokamak
