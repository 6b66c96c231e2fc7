// A request and what comes back from it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/image_options.h"
#include "tokamak/sampling_params.h"
#include "tokamak/status.h"

namespace tokamak {

using RequestId = uint64_t;

struct PromptImage;  // an image as the engine takes it

// An image of a prompt.
struct ImageData {
  std::string bytes = {};  // of a file: JPEG, PNG, WebP or GIF
  ImageOptions options = {};
  // Set by Engine::PrepareImage; bytes and options are then not read.
  std::shared_ptr<const PromptImage> prepared = {};
  std::vector<int32_t> tokens = {};  // of the prompt, in the place of the image's placeholder
};

// A generation request. With only a prompt set, it samples at temperature 1 until the model ends
// the answer or the context is full; see `sampling` (tokamak/sampling_params.h).
struct Request {
  // Set exactly one: text, or token ids, which are used as they are.
  std::optional<std::string> prompt = {};
  std::vector<int32_t> token_ids = {};
  bool add_special_tokens = true;     // prompt only: add begin-of-text if the model wants it
  bool parse_special_tokens = false;  // prompt only: "<|im_start|>" in the text becomes that token
  // In the order of their places in the prompt, each of which is one placeholder token
  // (ModelInfo::images). Without images, the placeholder is a token like any other.
  std::vector<ImageData> images = {};
  SamplingParams sampling = {};
  int32_t priority = 0;  // higher runs first
  // Client on whose behalf the request runs. Within a priority, clients take turns, and requests of
  // one client run in order of arrival. Requests without a name count as one client.
  std::string client = {};
  std::string cache_salt = {};  // requests share cached prefixes only with the same salt
  std::string label = {};       // name in snapshots; empty: the id
  bool speculate = true;        // false: no drafts for it (EngineOptions::speculate)
};

enum class FinishReason {
  kStop,       // an end token, a stop string or a stop token
  kLength,     // max_tokens reached, or the context is full
  kCancelled,  // Engine::Cancel, or the end of a drain
  kError,      // see OutputChunk::error
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

// Logprob (natural logarithm) of a token under the model's own distribution (log-softmax of the raw
// logits, before any sampling parameter), and the most likely alternatives, best first; equal ones
// by lower id.
struct TokenLogprobs {
  struct Entry {
    int32_t token_id = 0;
    float logprob = 0;

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  Entry token;
  std::vector<Entry> top;

  friend bool operator==(const TokenLogprobs&, const TokenLogprobs&) = default;
};

struct Usage {
  int32_t prompt_tokens = 0;      // those of images included
  int32_t cached_tokens = 0;      // prompt tokens found in the prefix cache
  int32_t completion_tokens = 0;  // of all choices together
};

// Seconds spent in each phase so far; 0 for phases not yet reached.
struct RequestTimings {
  double queued_seconds = 0;   // from Submit until first scheduled
  double prefill_seconds = 0;  // from then until the first token of any choice
  double decode_seconds = 0;   // since then
  int32_t preemptions = 0;     // of all choices
  int32_t steps = 0;           // steps that computed part of it
  int32_t drafts = 0;          // of all choices, verified by these steps (speculative decoding)
  int32_t accepted_drafts = 0;
  // The same by a draft's index among those of its sequence in the step. Only in chunks with a
  // finish_reason.
  std::vector<int32_t> drafts_at = {};
  std::vector<int32_t> accepted_drafts_at = {};
  double saved_seconds = 0;  // as EngineStats::saved_seconds, in steps that ran nothing else
};

// A piece of one choice's output. Chunks of a choice come in order. For an accepted request, every
// choice has exactly one chunk with a finish_reason, its last. A chunk may have no text and no
// tokens.
struct OutputChunk {
  RequestId request = 0;
  int32_t choice = 0;
  std::string text;  // valid UTF-8; may be empty while a character is incomplete
  // Byte offsets in `text` where the name of one of shown_special_tokens begins. What else looks
  // like one was written with ordinary tokens.
  std::vector<size_t> special_at;
  std::vector<int32_t> token_ids;  // new since the last chunk; end tokens left out
  // Number of last tokens whose text is held back because it may begin a stop string. If it does,
  // that text is never emitted.
  int32_t tokens_held = 0;
  std::vector<TokenLogprobs> logprobs;         // one per entry of token_ids, if requested
  std::vector<TokenLogprobs> prompt_logprobs;  // first chunk of choice 0; starts at prompt token 1
  std::optional<FinishReason> finish_reason;
  // Set by a beam search, whose answer comes in one chunk (BeamSearchParams).
  std::optional<float> beam_score = {};
  Status error;       // with kError
  uint64_t seed = 0;  // the effective seed
  Usage usage;        // until now
  RequestTimings timings;
};

// Called on the engine thread. Engine::Submit says what it may do there.
using OutputCallback = std::function<void(OutputChunk)>;

}  // namespace tokamak
