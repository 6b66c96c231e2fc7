// Texts as vectors: a request to a model that embeds, and what comes back from it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/request.h"
#include "tokamak/status.h"

namespace tokamak {

// Exactly one of the two: text, which may be empty, or token ids that are taken as they are.
struct EmbeddingInput {
  std::optional<std::string> text = {};
  std::vector<int32_t> token_ids = {};
};

// A plain value. Texts that are too long for the model are refused unless they may be cut.
struct EmbeddingRequest {
  std::vector<EmbeddingInput> inputs = {};  // at least one
  // Which of the model's prompts (ModelInfo::embedding) comes in front of texts, such as "query";
  // empty: its default, which is none for most.
  std::string prompt_name = {};
  bool add_special_tokens = true;     // texts only: around them, as the model wants it
  bool parse_special_tokens = false;  // texts only: "[SEP]" in the text is that token
  // Tokens of an input, special ones included, beyond which it is cut at its end; -1: as many as
  // the model takes.
  std::optional<int32_t> truncate_prompt_tokens = {};
  std::optional<int32_t> dimensions = {};  // of the vectors; fewer where the model allows it
  std::string label = {};                  // for people; empty: its id
};

struct EmbeddingOutput {
  RequestId request = 0;
  // One per input, in order; empty when there is an error.
  std::vector<std::vector<float>> vectors = {};
  Usage usage = {};
  RequestTimings timings = {};  // queued and prefill
  // Why there are none: kCancelled after Engine::Cancel or the end of a drain.
  Status error = {};
};

// Called on the engine thread: Engine::Submit says what it may do there.
using EmbeddingCallback = std::function<void(EmbeddingOutput)>;

}  // namespace tokamak
