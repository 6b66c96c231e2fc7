// Requests to /tokenize and /detokenize and their responses, as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/chat_template.h"
#include "server/openai/conversation_fields.h"
#include "tokamak/status.h"

namespace tokamak {

struct TokenizeRequest {
  std::string model;                // empty: the one that is served
  std::optional<std::string> text;  // nullopt: the conversation
  ChatInput conversation;
  std::vector<MessageImage> images;  // of the conversation
  // By default false for a conversation, because its template adds its own.
  bool add_special_tokens = true;
  bool return_pieces = false;
  std::vector<std::string> unknown_fields;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
  std::vector<std::string> unknown_fields;
};

// More pieces in one response are refused: each takes a hundred bytes.
inline constexpr size_t kMaxPieces = 100'000;

// Errors are those of request.h.
Result<TokenizeRequest> ParseTokenizeRequest(const std::string& body,
                                             const std::optional<ImageInfo>& images = {});
Result<DetokenizeRequest> ParseDetokenizeRequest(const std::string& body);
std::vector<std::string> KnownTokenizeFields();
std::vector<std::string> KnownDetokenizeFields();

// An image's tokens in a prompt.
struct ImageSpan {
  int32_t position = 0;  // of the first one
  int32_t num_tokens = 0;
};

// The answer of /tokenize about a prompt.
struct TokenizedPrompt {
  std::vector<int32_t> tokens = {};
  std::vector<ImageSpan> images = {};
  bool return_pieces = false;
};

// `pieces`: the bytes of each token, if requested.
std::string FormatTokens(const TokenizedPrompt& prompt, int32_t max_context,
                         const std::optional<std::vector<std::string>>& pieces);
std::string FormatText(const std::string& text);

}  // namespace tokamak
