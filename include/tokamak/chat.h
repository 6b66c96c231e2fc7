// Conversations: from messages to the prompt that a model was trained on.
#pragma once

#include <string>
#include <vector>

#include "tokamak/engine.h"

namespace tokamak {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", or what else the model's template knows
  std::string content;
};

// A request whose prompt is the conversation through the model's own chat template, rendered as
// transformers renders it, and ends where the model's next message begins. Its sampling parameters
// are the defaults. Special tokens that are spelled in a message ("<|im_end|>") are those tokens:
// check what strangers write. The template is parsed anew by each call, which takes up to some
// milliseconds.
//
// kUnimplemented for a model without a chat template; kInvalidArgument, with the template's own
// words, for a conversation that it refuses, such as roles that do not alternate.
//
// Thread-safe.
Result<Request> MakeChatRequest(const ModelInfo& model, const std::vector<ChatMessage>& messages);

}  // namespace tokamak
