// Responses as JSON text. Bytes that are not UTF-8 are replaced by U+FFFD.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/logprobs_json.h"
#include "tokamak/model_info.h"

namespace tokamak {

// The part of a response that all its chunks repeat.
struct ResponseHead {
  bool chat = false;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string system_fingerprint;
  uint64_t seed = 0;  // extension: the seed that was used
};

// A tool call, as the client gets it, or in a stream the next part of one.
struct ToolCallPart {
  int32_t index = 0;  // among the choice's calls
  std::string id;     // empty: continues the call
  std::string name;
  std::string arguments;  // JSON
};

// One choice: all of it, or the next part of a stream.
struct ChoicePart {
  int32_t index = 0;
  std::string text;
  std::string reasoning;                 // chat
  std::vector<ToolCallPart> tool_calls;  // chat
  std::vector<LogprobEntry> logprobs;
  bool with_logprobs = false;
  std::optional<std::vector<LogprobEntry>> prompt_logprobs;  // extension
  std::optional<std::vector<int32_t>> token_ids;             // extension
  std::optional<std::string> finish_reason;
  bool first = false;  // of a chat stream: has the role
};

// The end of a response, if the client asked for it.
struct ResponseTail {
  Usage usage;
  std::optional<RequestTimings> timings = {};  // extension
};

std::string FormatResponse(const ResponseHead& head, const std::vector<ChoicePart>& choices,
                           const ResponseTail& tail, TokenBytesRef bytes_of);
// Returns one SSE event, and one more for each call that begins with arguments: clients expect the
// first part of a call to have none. With `null_usage` it has "usage": null, which all chunks of a
// stream have if the stream ends with usage. `tail` is for the last chunk of a stream without
// usage, and adds the timings.
std::string FormatChunk(const ResponseHead& head, const ChoicePart& part, bool null_usage,
                        const std::optional<ResponseTail>& tail, TokenBytesRef bytes_of);
std::string FormatUsageChunk(const ResponseHead& head, const ResponseTail& tail);
std::string FormatErrorEvent(std::string_view error_json);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

std::string FormatModels(const std::string& id, int64_t created, const ModelInfo& model);
std::string FormatModel(const std::string& id, int64_t created, const ModelInfo& model);

}  // namespace tokamak
