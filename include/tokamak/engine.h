// The public API of tokamak: load a model, submit requests, get tokens.
//
//   auto engine = tokamak::Engine::Load({.model = "model.gguf"});
//   if (!engine.ok()) return Fail(engine.status());
//   auto answer = (*engine)->Generate({.prompt = "Once upon a time"});
//   if (answer.ok()) std::puts(answer->front().text.c_str());
//
// docs/library.md is the guide. Nothing here throws, and callbacks must not throw either.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/embed.h"
#include "tokamak/engine_snapshot.h"
#include "tokamak/engine_stats.h"
#include "tokamak/model_info.h"
#include "tokamak/option_values.h"
#include "tokamak/output_stream.h"
#include "tokamak/profile.h"
#include "tokamak/request.h"

namespace tokamak {

// Options that are fixed once an engine is loaded. Only `model` must be set. The defaults suit a
// machine that runs nothing else.
struct EngineOptions {
  std::string model = {};            // .gguf file, Hugging Face directory, or dummy:<config.json>
  std::string dummy_dtype = "bf16";  // type of a dummy model's matrices: bf16, q4_k, ...
  std::string device = "auto";       // cpu, cuda, cuda:N, auto
  std::string isa = "auto";          // CPU kernels: auto, or one listed by `tokamak run --help`
  // The exact but slower path: activations stay f32 (the default is int8 or bf16), and so do
  // weights on a GPU.
  bool precise = false;
  KernelChoice kernels = KernelChoice::kVerified;  // GPU only
  CudaGraphs cuda_graphs = CudaGraphs::kAuto;
  int32_t steps_in_flight = 0;       // steps submitted ahead; 0: the device's best
  double step_timeout_seconds = 60;  // GPU only: a longer step ends the engine; 0: no limit
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  MlaForm mla = MlaForm::kAbsorbed;  // DeepSeek only
  int32_t threads = 0;               // 0: one per physical core
  bool pin_threads = false;          // keep each compute thread on its own core
  int32_t max_seqs = 0;              // sequences running at the same time; 0: 64, on GPUs 256
  int32_t max_batch_tokens = 0;      // tokens in one step; 0: 512, on GPUs 8192
  int32_t max_context = 0;           // 0: what the model was trained for
  int32_t max_queue = 1024;          // waiting requests; further ones are refused
  int32_t block_size = 16;           // positions per KV block
  int64_t kv_cache_bytes = 0;        // 0: chosen from the free memory
  int32_t num_blocks = 0;            // overrides kv_cache_bytes
  int64_t host_cache_bytes = 0;      // size of the host tier for swapped-out blocks
  double target_itl_ms = 0;          // longest wanted gap between a stream's tokens; 0: no target
  bool prefix_cache = true;
  // With any other value than kAuto, a model embeds even if its files name no pooling.
  Pooling pooling = Pooling::kAuto;
  // Only for benchmarks, because it makes answers meaningless: every MoE layer chooses its experts
  // uniformly at random, with equal weights, whatever its router says. `tokamak bench` sets it.
  bool uniform_routing = false;
  bool profile = false;          // time every operation, for Engine::TakeProfile
  bool profile_events = false;   // with profile: also keep each operation as an event
  std::string record_path = {};  // where to log arrivals, steps and seeds for `tokamak replay`
  // Called on the loading thread with the fraction loaded so far, in [0, 1].
  std::function<void(double)> on_load_progress = {};
};

// Thread-safe, except for the destructor. Owns the compute threads and the engine thread, which
// owns everything that runs.
class Engine {
 public:
  // Reads the model on the calling thread (milliseconds to minutes) and starts the engine's
  // threads. A process may have several engines. Errors name the option, the file or the tensor:
  // kNotFound and kDataLoss for files, kInvalidArgument for options, kUnimplemented for what this
  // build or machine cannot run, kResourceExhausted (with the numbers) for what does not fit into
  // memory.
  static Result<std::unique_ptr<Engine>> Load(const EngineOptions& options);
  // Cancels running requests, waits for their last chunks and ends the threads. No callback is
  // called afterwards. Must not be called from a callback.
  virtual ~Engine() = default;

  // Queues a request and returns its id, which is unique within this engine. Does not wait. Text is
  // tokenized on the calling thread.
  //
  // If the request is accepted, `on_output` is called on the engine thread, perhaps before Submit
  // returns, until every choice has had its last chunk. No request advances while it runs, so it
  // must return quickly, and must not wait or throw. It may call Submit, Cancel, Pause and Resume,
  // but not Generate, Drain or OutputStream::Next.
  //
  // Errors, with the numbers: kInvalidArgument for parameters (the message starts with the field);
  // kUnimplemented for text if the model has no tokenizer, and for any request if the model embeds;
  // kResourceExhausted for a request that can never run (too long for the context or the whole
  // cache); kUnavailable if the queue is full, or the engine drains or has failed.
  virtual Result<RequestId> Submit(Request request, OutputCallback on_output) = 0;
  // Ends the request at the next step; its unfinished choices finish with kCancelled. Does not
  // wait. Unknown and finished ids are ignored.
  virtual void Cancel(RequestId request) = 0;
  // Pause suspends a request until Resume, for a reader that does not keep up. From the next step
  // on it holds no place in the batch and no KV cache, and gets only the output of steps already in
  // flight. Its answer stays the same; Resume may have to recompute part of it. Neither waits;
  // unknown and finished ids are ignored.
  virtual void Pause(RequestId request) = 0;
  virtual void Resume(RequestId request) = 0;
  // Submits a request whose chunks the caller pulls. Errors are those of Submit.
  Result<OutputStream> Stream(Request request);
  // Submits and waits. Returns one entry per choice, in order, with its chunks merged. Errors are
  // those of Submit; a choice that fails later has its error in its entry. Must not be called from
  // a callback.
  Result<std::vector<OutputChunk>> Generate(Request request);

  // Submit for an embedding model. Texts of all requests share steps; waiting requests take turns.
  // `on_output` is called once, with all vectors, under the rules of Submit. Errors:
  // kInvalidArgument for the request's fields (the message starts with the field),
  // kResourceExhausted for a text that is too long, kUnavailable as for Submit, kUnimplemented if
  // the model generates.
  virtual Result<RequestId> SubmitEmbedding(EmbeddingRequest request,
                                            EmbeddingCallback on_output) = 0;
  // Submits and waits. Must not be called from a callback.
  virtual Result<EmbeddingOutput> Embed(EmbeddingRequest request) = 0;
  // Returns the request with its texts as token ids, as SubmitEmbedding would compute them: with
  // the prompt and special tokens, and cut if requested. Runs on the calling thread.
  virtual Result<EmbeddingRequest> TokenizeEmbedding(EmbeddingRequest request) const = 0;

  // Returns the token ids of a UTF-8 text, on the calling thread. `add_special` adds begin-of-text
  // if the model wants it; with `parse_special`, "<|im_start|>" in the text becomes that token.
  // kUnimplemented if the model has no tokenizer.
  virtual Result<std::vector<int32_t>> Tokenize(std::string_view text, bool add_special,
                                                bool parse_special) const = 0;
  // Returns a lower bound for the number of tokens from Tokenize, special ones not counted, at a
  // fraction of its cost. 0 if nothing is known.
  virtual size_t LeastTokens(std::string_view /*text*/) const { return 0; }
  // Returns valid UTF-8, with special tokens by name. Empty if the model has no tokenizer.
  virtual std::string Detokenize(const std::vector<int32_t>& ids) const = 0;
  // Returns the exact bytes of one token, which may be part of a character. Empty if unknown.
  virtual std::string TokenBytes(int32_t id) const = 0;

  // Compiles a structured output on the calling thread, as Submit would, and keeps the result for
  // later requests with the same one, as long as there is room. kInvalidArgument for what is wrong
  // and kUnimplemented for what cannot be guaranteed; the message starts with the path of it
  // ("structured_output.properties.a: ..."). Thread-safe.
  virtual Status PrepareStructuredOutput(const StructuredOutput& /*output*/) const {
    return Status(StatusCode::kUnimplemented, "structured_output: this engine has none");
  }

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
