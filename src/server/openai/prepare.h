// Prepares requests for the engine: everything that takes time in proportion to the body.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "chat/prepare_messages.h"
#include "chat/tool_calls.h"
#include "images/file_url.h"
#include "server/openai/embedding_request.h"
#include "server/openai/request.h"
#include "server/openai/request_limits.h"
#include "server/openai/response_bytes.h"
#include "server/openai/tokenize_request.h"
#include "server/transport/web_client.h"
#include "tokamak/server.h"

namespace tokamak {

struct PreparedCompletion {
  CompletionRequest request;                  // always has a seed
  std::vector<std::vector<int32_t>> prompts;  // token ids in [0, vocab_size), none empty
  std::vector<ImageData> images;              // of the only prompt; request.images until AddImages
  // How the model's text is split into content, reasoning and tool calls. Null: all of it is
  // content.
  std::shared_ptr<const AnswerFormat> answer_format;
  std::string client;  // as in Request; set before it is submitted
};

// A response that needs no engine.
struct PreparedResponse {
  std::string body = {};
  // AddImages makes the body of these.
  std::vector<MessageImage> images = {};
  TokenizedPrompt prompt = {};
  std::vector<std::string> unknown_fields = {};  // of the request, which were ignored
};

// The formats of chat/tool_calls_format.h that the model uses: their names, "auto" or "none".
struct AnswerParsers {
  std::string tool_calls = "auto";
  std::string reasoning = "auto";
};

// Sources of the images of URLs, other than data: URLs.
struct ImageSources {
  std::shared_ptr<const ImageRoot> root = {};  // null: not from files
  std::shared_ptr<WebClient> web = {};         // null: not from the web
};

// Immutable and thread-safe, because it only calls const methods of the model.
class Preparer {
 public:
  // The model outlives it. `model_id` is the name that clients use. Unknown names in `parsers`
  // count as "auto".
  Preparer(ServedModel served, std::string model_id, const RequestLimits& limits,
           const AnswerParsers& parsers = {}, ImageSources sources = {});

  // Each parses and checks a body, renders the conversation and tokenizes. The body is freed once
  // it is parsed.
  Result<PreparedCompletion> Prepare(bool chat, std::string body) const;
  Result<OpenAiEmbeddingRequest> Embed(std::string body) const;  // its texts are token ids
  const TokenSizes& token_sizes() const { return sizes_; }
  Result<PreparedResponse> Tokenize(std::string body) const;
  Result<PreparedResponse> Detokenize(std::string body) const;
  // Read files, and decode the images of a conversation, which takes far longer than their bytes
  // say. Must be called if there are any. Those on the web must have been fetched.
  Result<PreparedCompletion> AddImages(PreparedCompletion prepared) const;
  Result<PreparedResponse> AddImages(PreparedResponse prepared) const;

 private:
  // One of the model's chat templates, and how the model answers conversations in it.
  struct ChatFormat {
    Result<ChatTemplate> chat;  // turns a conversation into text
    TemplateTraits traits;      // what the template expects of messages
    const ToolFormat* tools = nullptr;
    const ReasoningFormat* reasoning = nullptr;
    std::vector<int32_t> marks;  // special tokens that `tools` and `reasoning` look for
  };
  struct Rendered {
    std::string text;
    std::shared_ptr<AnswerFormat> answer_format;
  };

  ChatFormat MakeChatFormat(const std::string& source, const AnswerParsers& parsers) const;
  const ChatFormat& ChatFormatFor(const ChatInput& conversation) const;
  Status CheckModel(const std::string& model) const;
  Status CheckIds(const std::string& path, const std::vector<int32_t>& ids) const;
  // Refuses text that cannot fit the context, without tokenizing it.
  Status CheckLength(std::string_view path, std::string_view text) const;
  Result<Rendered> Render(ChatInput conversation) const;
  Status PrepareChat(PreparedCompletion& prepared) const;
  Status PreparePrompts(PreparedCompletion& prepared) const;
  // Makes the calls of an answer keep to the tools' schemas, beside a structured output.
  Status HoldTools(AnswerFormat& format, CompletionRequest& request) const;
  // Does that if the request demands it, and says what comes before a structured output.
  Status AddStructure(Rendered& rendered, CompletionRequest& request) const;
  // Gives a thinking_token_budget the marks of the model's reasoning. Refuses one that the client
  // gave if there are none.
  Status AddThinking(const Rendered& rendered, CompletionRequest& request) const;
  // Refuses conversations whose placeholders are not those of their images.
  Status CheckImages(size_t num_images, const std::vector<int32_t>& prompt) const;
  // Refuses images whose URLs this server does not read.
  Status CheckSources(const std::vector<MessageImage>& images) const;
  Result<ImageData> Decode(MessageImage image) const;
  Result<std::vector<ImageData>> Decode(std::vector<MessageImage> images) const;
  Result<PreparedResponse> Respond(PreparedResponse prepared) const;
  // Refuses echoes that are too long.
  Status CheckEcho(const PreparedCompletion& prepared) const;
  // Refuses more alternatives for a prompt's tokens than an answer can hold, before they are made.
  Status CheckPromptLogprobs(const PreparedCompletion& prepared) const;
  // The same for a search's tokens, which are kept for all of its beams until it ends.
  Status CheckBeamLogprobs(const PreparedCompletion& prepared) const;
  Status CheckVectors(const OpenAiEmbeddingRequest& request) const;

  const ServedModel served_;
  const LoadedModel& loaded_;
  const std::string model_id_;
  const RequestLimits limits_;
  const ImageSources sources_;
  const TokenSizes sizes_;
  const ChatFormat plain_;
  const std::unique_ptr<const ChatFormat> with_tools_;  // null: plain_ serves tools too
};

}  // namespace tokamak
