// Texts as vectors: load an embedding model, submit texts, get a vector for each.
//
//   auto embedder = tokamak::Embedder::Load({.model = "all-MiniLM-L6-v2"});
//   if (!embedder.ok()) return Fail(embedder.status());
//   auto output = (*embedder)->Embed({.inputs = {{.text = "A man eats."}}});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/engine_options.h"
#include "tokamak/loaded_model.h"
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
  // Why there are no vectors. kCancelled after Cancel or at the end of a drain.
  Status error = {};
};

// Called on the engine thread. Embedder::Submit says what it may do there.
using EmbeddingCallback = std::function<void(EmbeddingOutput)>;

// Thread-safe, except for the destructor.
class Embedder : public LoadedModel {
 public:
  // Like Engine::Load, for models that embed. Options of KV cache blocks, prefix cache and host
  // tier do not apply, and record_path is refused.
  static Result<std::unique_ptr<Embedder>> Load(const EngineOptions& options);

  // Queues a request and returns its id. Does not wait. Text is tokenized on the calling thread.
  // Texts of all requests share steps; waiting requests take turns.
  //
  // `on_output` is called once, with all vectors, on the engine thread, perhaps before Submit
  // returns. No request advances while it runs, so it must return quickly, and must not wait or
  // throw. It may call Submit and Cancel, but not Embed or Drain.
  //
  // Errors: kInvalidArgument for the request's fields (the message starts with the field),
  // kResourceExhausted for a text that is too long, kUnimplemented for text if the model has no
  // tokenizer, kUnavailable if the queue is full, or the embedder drains or has failed.
  virtual Result<RequestId> Submit(EmbeddingRequest request, EmbeddingCallback on_output) = 0;
  // Submits and waits. Must not be called from a callback.
  Result<EmbeddingOutput> Embed(EmbeddingRequest request);
  // Returns the request with its texts as token ids, as Submit would compute them: with the prompt
  // and special tokens, and cut if requested. Runs on the calling thread.
  virtual Result<EmbeddingRequest> TokenizeInputs(EmbeddingRequest request) const = 0;
};

}  // namespace tokamak
