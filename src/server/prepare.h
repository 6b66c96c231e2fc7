// From the body of a completion call to what the engine takes: everything whose time is in
// proportion to the body.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "chat/prepare_messages.h"
#include "server/openai_request.h"
#include "tokamak/engine.h"

namespace tokamak {

struct PreparedCall {
  CompletionCall call;                        // with a seed
  std::vector<std::vector<int32_t>> prompts;  // token ids in [0, vocab_size), at least one each
};

// Immutable and safe to use from any number of threads: so are the engine's const methods.
class Preparer {
 public:
  // The engine outlives it. `model_id` is what clients call the model.
  Preparer(const Engine& engine, std::string model_id);

  // Parses, checks, renders the conversation and tokenizes. The body is freed once it is parsed.
  Result<PreparedCall> Prepare(bool chat, std::string body) const;

 private:
  // Frees the conversation once it is rendered.
  Result<std::vector<std::vector<int32_t>>> Tokenize(CompletionCall& call) const;
  Result<std::string> Render(ChatInput conversation) const;

  const Engine& engine_;
  const std::string model_id_;
  const Result<ChatTemplate> chat_;  // how conversations become text
  const TemplateTraits traits_;      // and what it wants them to be like
};

}  // namespace tokamak
