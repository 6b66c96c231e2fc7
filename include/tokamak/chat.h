// Turns chat messages into the prompt format that the model was trained on.
#pragma once

#include <string>
#include <vector>

#include "tokamak/engine.h"

namespace tokamak {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", or another that the model's template knows
  std::string content;
};

// Returns a request whose prompt is the conversation, rendered by the model's chat template as
// transformers does, up to where the model's next message begins. The sampling parameters are the
// defaults. A special token spelled in a message ("<|im_end|>") becomes that token, so check
// untrusted text. Each call parses the template, which may take a few milliseconds.
//
// kUnimplemented if the model has no chat template; kInvalidArgument, with the template's own
// words, if the template refuses the conversation (for example because roles do not alternate).
//
// Thread-safe.
Result<Request> MakeChatRequest(const ModelInfo& model, const std::vector<ChatMessage>& messages);

}  // namespace tokamak
