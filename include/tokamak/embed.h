// Embedding requests and their results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/request.h"
#include "tokamak/status.h"

namespace tokamak {

// Set exactly one: text, which may be empty, or token ids, which are used as they are.
struct EmbeddingInput {
  std::optional<std::string> text = {};
  std::vector<int32_t> token_ids = {};
};

// A text that is too long for the model is refused, unless truncate_prompt_tokens shortens it.
struct EmbeddingRequest {
  std::vector<EmbeddingInput> inputs = {};  // at least one
  // The model's prompt to put before each text, such as "query" (see ModelInfo::embedding). Empty
  // selects the model's default, which for most models is no prompt.
  std::string prompt_name = {};
  bool add_special_tokens = true;     // text only: add the model's special tokens
  bool parse_special_tokens = false;  // text only: "[SEP]" in the text becomes that token
  // Longer inputs are cut at their end to this many tokens, special ones included; -1: to the
  // model's limit. Absent: inputs are not cut.
  std::optional<int32_t> truncate_prompt_tokens = {};
  std::optional<int32_t> dimensions = {};  // length of each vector; absent: the model's own
  std::string label = {};                  // name in snapshots; empty: the request's id
};

struct EmbeddingOutput {
  RequestId request = 0;
  // One per input, in order; empty when there is an error.
  std::vector<std::vector<float>> vectors = {};
  Usage usage = {};
  RequestTimings timings = {};  // queued and prefill only
  // Why there are no vectors. kCancelled after Engine::Cancel or at the end of a drain.
  Status error = {};
};

// Called on the engine thread. Engine::Submit says what it may do there.
using EmbeddingCallback = std::function<void(EmbeddingOutput)>;

}  // namespace tokamak
