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

// A plain value. A request that only names a prompt is sampled at temperature 1 until the model
// ends it or the context is full: set `sampling` (tokamak/sampling_params.h).
struct Request {
  // Exactly one of the two: text, or token ids that are taken as they are.
  std::optional<std::string> prompt = {};
  std::vector<int32_t> token_ids = {};
  bool add_special_tokens = true;     // prompt only: begin-of-text as the model wants it
  bool parse_special_tokens = false;  // prompt only: "<|im_start|>" in the text is that token
  SamplingParams sampling = {};
  int32_t priority = 0;  // higher runs first
  // The name of the client that it is for. Within a priority, clients share the engine in turn, and
  // requests of a client run in order of arrival. Requests without a name are one client's.
  std::string client = {};
  std::string cache_salt = {};  // requests share cached prefixes only with those of equal salt
  std::string label = {};       // what snapshots call it, for people; empty: its id
};

enum class FinishReason {
  kStop,       // the model's own end, a stop string or a stop token
  kLength,     // max_tokens, or the context is full
  kCancelled,  // Engine::Cancel, or the end of a drain
  kError,      // OutputChunk::error says which
};
// "stop", "length", "cancelled", "error".
constexpr const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

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

// How long each phase of a request has taken so far. Phases that it has not reached are 0.
struct RequestTimings {
  double queued_seconds = 0;   // from Submit until some of it was first scheduled
  double prefill_seconds = 0;  // from then until the first token of any choice
  double decode_seconds = 0;   // from then on
  int32_t preemptions = 0;     // of all choices
  int32_t steps = 0;           // in which some of it was scheduled
};

// One piece of one choice's output. Chunks of a choice come in order; the one with a finish_reason
// is its last. Every accepted request ends with exactly one chunk per choice that has one. A chunk
// may hold no text and no tokens.
struct OutputChunk {
  RequestId request = 0;
  int32_t choice = 0;
  std::string text;                // valid UTF-8; may be empty while a character is incomplete
  std::vector<int32_t> token_ids;  // the tokens added since the last chunk, end tokens left out
  // How many of the last tokens have no text yet, because theirs may be the start of a stop string.
  // If it was one, they never get any.
  int32_t tokens_held = 0;
  std::vector<TokenLogprobs> logprobs;         // one per token_ids entry, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // first chunk of choice 0; starts at prompt token 1
  std::optional<FinishReason> finish_reason;
  Status error;       // with kError
  uint64_t seed = 0;  // the effective seed
  Usage usage;        // so far
  RequestTimings timings;
};

// Called on the engine thread: Engine::Submit says what it may do there.
using OutputCallback = std::function<void(OutputChunk)>;

}  // namespace tokamak
