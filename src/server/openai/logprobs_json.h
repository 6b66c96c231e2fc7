// Logprobs as JSON text, in the three forms that responses use. They are written token by token,
// because a tree of JSON values for one long response would take gigabytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/request.h"

namespace tokamak {

// Returns the exact bytes of a token, which need not be valid UTF-8.
using TokenBytesRef = FunctionRef<std::string(int32_t token)>;

// A token with its logprob and its alternatives, most likely first.
struct LogprobEntry {
  TokenLogprobs token;
  int32_t text_offset = 0;  // completions: characters (code points) before it
  bool has_logprob = true;  // false: a prompt's first token
};

// {"content": [{token, logprob, bytes, top_logprobs}, ...], "refusal": null}
std::string ChatLogprobsJson(const std::vector<LogprobEntry>& entries, TokenBytesRef bytes_of);
// {"tokens": [...], "token_logprobs": [...], "top_logprobs": [...], "text_offset": [...]}
std::string CompletionLogprobsJson(const std::vector<LogprobEntry>& entries,
                                   TokenBytesRef bytes_of);
// Extension: [null, {token, logprob, top_logprobs}, ...]
std::string PromptLogprobsJson(const std::vector<LogprobEntry>& entries, TokenBytesRef bytes_of);

}  // namespace tokamak
