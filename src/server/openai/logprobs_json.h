// Logprobs as JSON text, in the three forms that answers have. They are written token by token: as
// one tree of values, those of one long answer would take gigabytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/request.h"

namespace tokamak {

// The exact bytes of a token, which are not always text.
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
