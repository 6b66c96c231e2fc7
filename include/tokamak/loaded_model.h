// Engine and Embedder have this in common: a model, its tokenizer, and the state of what runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/engine_options.h"
#include "tokamak/engine_snapshot.h"
#include "tokamak/engine_stats.h"
#include "tokamak/model_info.h"
#include "tokamak/profile.h"
#include "tokamak/request.h"

namespace tokamak {

// Returns whether Engine or Embedder loads the model. Reads only its description. Errors are those
// of Engine::Load.
Result<Task> FindTask(const EngineOptions& options);

// Thread-safe, except for the destructor. Owns the compute threads and the engine thread, which
// owns everything that runs.
class LoadedModel {
 public:
  // Cancels running requests, waits for their callbacks and ends the threads. No callback is called
  // afterwards. Must not be called from a callback.
  virtual ~LoadedModel() = default;

  // Ends the request at the next step; its last output says kCancelled. Does not wait. Unknown and
  // finished ids are ignored.
  virtual void Cancel(RequestId request) = 0;

  // Returns the token ids of a UTF-8 text, on the calling thread. `add_special` adds begin-of-text
  // if the model wants it; with `parse_special`, "<|im_start|>" in the text becomes that token.
  // kUnimplemented if the model has no tokenizer.
  virtual Result<std::vector<int32_t>> Tokenize(std::string_view text, bool add_special,
                                                bool parse_special) const = 0;
  // Returns a lower bound for the number of tokens from Tokenize, special ones not counted, at a
  // fraction of its cost. 0 if nothing is known.
  virtual size_t LeastTokens(std::string_view text) const = 0;
  // Returns valid UTF-8, with special tokens by name. Empty if the model has no tokenizer.
  virtual std::string Detokenize(const std::vector<int32_t>& ids) const = 0;
  // Returns the exact bytes of one token, which may be part of a character. Empty if unknown.
  virtual std::string TokenBytes(int32_t id) const = 0;

  virtual const ModelInfo& model() const = 0;
  // The state after the last step. Cheap enough for many calls a second.
  virtual EngineStats stats() const = 0;
  // Calls `on_snapshot` once, on the engine thread, after the current step or at once if there is
  // none; never if the engine ends first. The snapshot may be up to 0.1 s old: at most ten are made
  // per second.
  virtual void Snapshot(SnapshotCallback on_snapshot) = 0;
  // How steps spent their time since the last call. Empty without EngineOptions::profile.
  virtual Profile TakeProfile() = 0;
  // OK while the engine can run requests. An error is permanent (the device failed and did not
  // recover): all requests end with it, new ones are refused, and only another process can go on.
  virtual Status health() const = 0;
  // Identifies everything that answers depend on: weights, binary, ISA, options.
  virtual const std::string& system_fingerprint() const = 0;
  // Refuses new requests permanently, lets running ones finish for `timeout_seconds`, cancels the
  // rest, and returns when none is left. Must not be called from a callback.
  virtual void Drain(double timeout_seconds) = 0;
};

}  // namespace tokamak
