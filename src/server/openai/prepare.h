// From the body of a completion request to what the engine takes: everything whose time is in
// proportion to the body.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "chat/prepare_messages.h"
#include "chat/tool_calls.h"
#include "server/openai/embedding_request.h"
#include "server/openai/request.h"
#include "server/openai/request_limits.h"
#include "server/openai/response_bytes.h"
#include "tokamak/engine.h"

namespace tokamak {

struct PreparedCompletion {
  CompletionRequest request;                  // with a seed
  std::vector<std::vector<int32_t>> prompts;  // token ids in [0, vocab_size), at least one each
  // How the answers to a conversation are read; null: they are content as they come.
  std::shared_ptr<const AnswerFormat> answer_format;
  std::string client;  // as in Request; not known when it is prepared
};

// The body of an answer that needs no engine.
struct PreparedResponse {
  std::string body;
  std::vector<std::string> unknown_fields;  // of the request
};

struct PreparedEmbedding {
  OpenAiEmbeddingRequest request;  // with token ids in place of texts
};

// Which of chat/tool_calls_format.h a model's answers have: their names, "auto" or "none".
struct AnswerParsers {
  std::string tool_calls = "auto";
  std::string reasoning = "auto";
};

// Immutable and safe to use from any number of threads: so are the engine's const methods.
class Preparer {
 public:
  // The engine outlives it. `model_id` is what clients call the model. Of `parsers`, names that
  // there are not count as "auto".
  Preparer(const Engine& engine, std::string model_id, const RequestLimits& limits,
           const AnswerParsers& parsers = {});

  // Each parses, checks, renders the conversation and tokenizes. The body is freed once it is
  // parsed.
  Result<PreparedCompletion> Prepare(bool chat, std::string body) const;
  Result<PreparedEmbedding> Embed(std::string body) const;
  // Sizes for the engine's vocabulary.
  const TokenSizes& token_sizes() const { return sizes_; }
  Result<PreparedResponse> Tokenize(std::string body) const;
  Result<PreparedResponse> Detokenize(std::string body) const;

 private:
  // One of the model's templates, and what is known of it.
  struct ChatFormat {
    Result<ChatTemplate> chat;  // how conversations become text
    TemplateTraits traits;      // and what it wants them to be like
    const ToolFormat* tools = nullptr;
    const ReasoningFormat* reasoning = nullptr;
    std::vector<int32_t> marks;  // special tokens that the two formats look for
  };
  struct Rendered {
    std::string text;
    std::shared_ptr<const AnswerFormat> answer_format;
  };

  ChatFormat MakeChatFormat(const std::string& source, const AnswerParsers& parsers) const;
  const ChatFormat& ChatFormatFor(const ChatInput& conversation) const;
  Status CheckModel(const std::string& model) const;
  Status CheckIds(const std::string& path, const std::vector<int32_t>& ids) const;
  // Refuses at once what cannot fit the context, however it is tokenized.
  Status CheckLength(std::string_view path, std::string_view text) const;
  Result<Rendered> Render(ChatInput conversation) const;
  Status PrepareChat(PreparedCompletion& prepared) const;
  Status PreparePrompts(PreparedCompletion& prepared) const;
  // Refuses echoes that are too long, before anything runs.
  Status CheckEcho(const PreparedCompletion& prepared) const;
  Status CheckVectors(const OpenAiEmbeddingRequest& request) const;

  const Engine& engine_;
  const std::string model_id_;
  const RequestLimits limits_;
  const TokenSizes sizes_;
  const ChatFormat plain_;
  const std::unique_ptr<const ChatFormat> with_tools_;  // null: the plain one serves
};

}  // namespace tokamak
