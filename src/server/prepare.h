// From the body of a completion call to what the engine takes: everything whose time is in
// proportion to the body.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chat/chatml.h"
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
  Result<std::vector<std::vector<int32_t>>> Tokenize(const CompletionCall& call) const;

  const Engine& engine_;
  const std::string model_id_;
  const Result<ChatMl> chat_;  // how conversations become text
};

}  // namespace tokamak
