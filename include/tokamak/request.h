// A request and what comes back from it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/sampling_params.h"
#include "tokamak/status.h"

namespace tokamak {

using RequestId = uint64_t;

struct Request {
  // Exactly one of the two: text, or token ids that are taken as they are.
  std::optional<std::string> prompt = {};
  std::vector<int32_t> token_ids = {};
  bool add_special_tokens = true;     // prompt only: begin-of-text as the model wants it
  bool parse_special_tokens = false;  // prompt only: "<|im_start|>" in the text is that token
  SamplingParams sampling = {};
  int32_t priority = 0;         // higher runs first; equal ones in order of arrival
  std::string cache_salt = {};  // requests share cached prefixes only with those of equal salt
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

// A token's logprob (natural logarithm) under the model's own distribution, and the most likely
// alternatives, best first.
struct TokenLogprobs {
  struct Entry {
    int32_t token_id = 0;
    float logprob = 0;
  };
  Entry token;
  std::vector<Entry> top;
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;      // prompt tokens whose cache entries were found, not computed
  int32_t completion_tokens = 0;  // all choices together
};

// One piece of one choice's output. Chunks of a choice come in order; the one with a finish_reason
// is its last. Every accepted request ends with exactly one chunk per choice that has one.
struct OutputChunk {
  RequestId request = 0;
  int32_t choice = 0;
  std::string text;                // valid UTF-8; may be empty while a character is incomplete
  std::vector<int32_t> token_ids;  // the tokens added since the last chunk, end tokens left out
  std::vector<TokenLogprobs> logprobs;         // one per token_ids entry, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // first chunk of choice 0; starts at prompt token 1
  std::optional<FinishReason> finish_reason;
  Status error;       // with kError
  uint64_t seed = 0;  // the effective seed
  Usage usage;        // so far
};

using OutputCallback = std::function<void(OutputChunk)>;

}  // namespace tokamak
