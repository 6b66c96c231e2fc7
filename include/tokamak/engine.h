// The public face of tokamak: load a model, submit requests, get tokens.
//
//   auto engine = tokamak::Engine::Load({.model = "model.gguf"});
//   if (!engine.ok()) return Fail(engine.status());
//   auto answer = (*engine)->Generate({.prompt = "Once upon a time"});
//   if (answer.ok()) std::puts(answer->front().text.c_str());
//
// docs/embedding.md is the guide. Nothing here throws, and no callback may.
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
#include "tokamak/request.h"

namespace tokamak {

// Options that are fixed once an engine is loaded. The defaults suit a machine that does nothing
// else; only `model` must be set.
struct EngineOptions {
  std::string model = {};            // .gguf file, Hugging Face directory, or dummy:<config.json>
  std::string dummy_dtype = "bf16";  // of a dummy's matrices, as GGUF names types: bf16, q4_k, ...
  std::string device = "auto";       // cpu, cuda, cuda:N, auto
  std::string isa = "auto";          // CPU kernels: auto, or one that `tokamak --help` lists
  // Keep activations in f32 where the default is int8 or bf16; on a GPU weights too. Slower; the
  // exact path.
  bool precise = false;
  // Run decode steps as CUDA graphs: on, off or auto (on where the device has them).
  std::string cuda_graphs = "auto";
  int32_t steps_in_flight = 0;  // submitted before the first is waited for; 0: the device's best
  double step_timeout_seconds = 60;     // on a GPU: a longer step ends the engine; 0: none does
  std::string kv_cache_dtype = "auto";  // f32, f16, bf16, q8_0, auto
  // How models with multi-head latent attention (DeepSeek-V2 and V3) compute it: standard, latent,
  // absorbed, or auto, which chooses by phase and so gives up that an answer is the same bits in
  // any company. Others ignore it.
  std::string mla = "absorbed";
  int32_t threads = 0;             // 0: one per physical core
  bool pin_threads = false;        // keep each compute thread on a core of its own
  int32_t max_seqs = 64;           // sequences running at the same time
  int32_t max_batch_tokens = 512;  // tokens in one step
  int32_t max_context = 0;         // 0: what the model was trained for
  int32_t max_queue = 1024;        // waiting requests; more are refused
  int32_t block_size = 16;         // positions per KV block
  int64_t kv_cache_bytes = 0;      // 0: chosen from the memory that is free
  int32_t num_blocks = 0;          // overrides kv_cache_bytes
  int64_t host_cache_bytes = 0;    // host tier for swapped-out blocks
  double target_itl_ms = 0;        // longest wanted gap between a stream's tokens; 0: no target
  bool prefix_cache = true;
  // How a model that embeds makes a vector: mean, cls, last, or auto for what its files say. Any
  // but auto makes a model embed whose files say nothing.
  std::string pooling = "auto";
  bool profile = false;          // note the time of every operation, for Engine::TakeProfile
  bool profile_events = false;   // with profile: and keep each one
  std::string record_path = {};  // where to log arrivals, steps and seeds for `tokamak replay`
  // Called on the loading thread with the fraction loaded so far, in [0, 1].
  std::function<void(double)> on_load_progress = {};
};

// The work of a model: an engine does one of the two.
enum class Task {
  kGenerate,  // Submit, Generate
  kEmbed,     // SubmitEmbedding, Embed
};

// The vectors of a model that embeds. They are cut only if the model was trained for that.
struct EmbeddingInfo {
  int32_t dimensions = 0;               // of a vector
  std::string pooling;                  // "mean", "cls" or "last"
  bool normalized = false;              // to length 1
  std::vector<std::string> prompts;     // names that EmbeddingRequest::prompt_name may have
  std::vector<int32_t> cut_dimensions;  // fewer that may be asked for, ascending
  bool any_dimensions = false;          // or any number of them
};

// The loaded model, and the device that it runs on. Constant as long as the engine lives.
struct ModelInfo {
  std::string name;
  std::string architecture;
  int64_t num_parameters = 0;
  int32_t vocab_size = 0;
  int32_t max_context = 0;   // positions that a sequence may have in this engine
  std::string device;        // "cpu", "cuda:0", ...
  std::string backend;       // "cpu/avx512", "cpu/avx2", ...
  int32_t threads = 0;       // compute threads
  int64_t weight_bytes = 0;  // as prepared
  int64_t expert_bytes = 0;  // of which a token reads expert_share; the rest is read by all
  double expert_share = 1;
  int64_t kv_token_bytes = 0;  // KV cache per position, all layers
  int64_t token_macs = 0;      // multiplications by weights that one position takes
  int64_t logits_macs = 0;     // and that its logits take
  int64_t device_bytes = 0;    // GPU memory that loading took, for everything; 0 on CPUs
  double load_seconds = 0;
  std::string chat_template;  // the checkpoint's Jinja source; empty: it has none
  std::string tool_template;  // and the one for conversations with tools; empty: the same
  std::string bos_token;      // spellings, for chat templates; empty: there is none
  std::string eos_token;
  SamplingDefaults sampling;  // for what a request leaves open
  Task task = Task::kGenerate;
  EmbeddingInfo embedding;  // with Task::kEmbed
};

// Bytes of weights that a step of so many tokens reads: of the experts, those that tokens with
// choices independent of each other would touch on average.
double StepWeightBytes(const ModelInfo& model, double tokens);

// The time that an engine's steps took, on its device and on the host, by what took it.
struct Profile {
  struct Op {
    std::string name;  // "linear", "attention", ...; "graph": a whole recorded pass
    int64_t calls = 0;
    double seconds = 0;
  };
  struct Steps {
    std::string kind;     // "decode": one token per sequence; "prefill": several; "mixed": both
    std::vector<Op> ops;  // most time first
    int64_t count = 0;
    double busy_seconds = 0;           // of all ops
    double inside_steps_seconds = 0;   // between the ops of a step
    double between_steps_seconds = 0;  // from the end of a step to the start of one of these
    double longest_gap_seconds = 0;    // of those
    // Time of the engine's thread between the ends of its waits for steps, while it has work. The
    // part that it did not wait it was busy: on a GPU with scheduling, packing and starting.
    double host_seconds = 0;
    double host_waiting_seconds = 0;
  };
  std::vector<Steps> steps;  // decode, prefill, mixed: those that there were

  // One operation, or one step with all of its operations.
  struct Event {
    const char* name = "";     // a literal: as in Op, or "step"
    double begin_seconds = 0;  // since the engine's first operation
    double end_seconds = 0;
  };
  static constexpr size_t kMaxEvents = size_t{1} << 20;
  std::vector<Event> events;   // with EngineOptions::profile_events; a step follows its operations
  int64_t dropped_events = 0;  // those after kMaxEvents
};

// Thread-safe, but for its destructor. Owns the engine thread, which owns everything that runs, and
// the compute threads.
class Engine {
 public:
  // Reads the model and starts the engine's threads; takes from milliseconds to minutes, on the
  // calling thread. Errors name the option, the file or the tensor: kNotFound and kDataLoss for
  // files, kInvalidArgument for options, kUnimplemented for what this build or machine cannot run,
  // kResourceExhausted, with the numbers, for what does not fit into memory. A process may have
  // several engines.
  static Result<std::unique_ptr<Engine>> Load(const EngineOptions& options);
  // Cancels what runs, waits for its last chunks, and ends the threads: afterwards no callback is
  // called. Not from a callback.
  virtual ~Engine() = default;

  // Queues a request and returns its id, which no other request of this engine has had; waits for
  // nothing. kUnimplemented where the model embeds. Text is tokenized on the calling thread.
  // `on_output` is called on the engine thread, from then on (perhaps before this returns) until
  // every choice has had its last chunk, and only if the request was accepted. While it runs no
  // request advances: it must return quickly, not wait, and not throw. It may call Submit,
  // Cancel, Pause and Resume, not Generate or Drain. Refused with the numbers: kInvalidArgument for
  // parameters (the message starts with the field), kUnimplemented for text where the model has no
  // tokenizer, kResourceExhausted for a request that can never run (too long for the context or the
  // whole cache), kUnavailable for a full queue, an engine that drains or one that has failed.
  virtual Result<RequestId> Submit(Request request, OutputCallback on_output) = 0;
  // Ends the request in the next step; its choices that have not ended finish with kCancelled.
  // Waits for nothing. Ids that are unknown or have ended are ignored.
  virtual void Cancel(RequestId request) = 0;
  // Takes a request out until Resume, for a reader that does not keep up: from the next step on it
  // holds neither a place in the batch nor KV cache, and gets no more output than steps in flight
  // bring. What it computes again afterwards changes nothing in its answer. Both wait for nothing,
  // and ignore ids that are unknown or have ended.
  virtual void Pause(RequestId request) = 0;
  virtual void Resume(RequestId request) = 0;
  // Submits and waits. One entry per choice, in order, chunks merged. Errors are those of Submit; a
  // choice that fails later has its error in its entry. Not from a callback.
  virtual Result<std::vector<OutputChunk>> Generate(Request request) = 0;

  // The same for a model that embeds. Texts of all requests share steps, taken in turn from the
  // requests that wait; `on_output` is called once, with all vectors, as Submit has it. Refused:
  // kInvalidArgument for what the request says (the message starts with the field),
  // kResourceExhausted for a text that is too long, kUnavailable as above, kUnimplemented where the
  // model generates.
  virtual Result<RequestId> SubmitEmbedding(EmbeddingRequest request,
                                            EmbeddingCallback on_output) = 0;
  // Submits and waits. Not from a callback.
  virtual Result<EmbeddingOutput> Embed(EmbeddingRequest request) = 0;
  // The first part of SubmitEmbedding, on the calling thread: the request with its texts as token
  // ids, prompts in front, special tokens around, cut where that was asked for.
  virtual Result<EmbeddingRequest> TokenizeEmbedding(EmbeddingRequest request) const = 0;

  // Token ids of a UTF-8 text, on the calling thread. `add_special`: begin-of-text as the model
  // wants it; `parse_special`: "<|im_start|>" in the text is that token. kUnimplemented where the
  // model has no tokenizer.
  virtual Result<std::vector<int32_t>> Tokenize(std::string_view text, bool add_special,
                                                bool parse_special) const = 0;
  // Tokenize gives at least so many tokens, special ones aside; found in a fraction of its time. 0
  // where nothing is known.
  virtual size_t LeastTokens(std::string_view /*text*/) const { return 0; }
  // Valid UTF-8; special tokens by their names; empty where the model has no tokenizer.
  virtual std::string Detokenize(const std::vector<int32_t>& ids) const = 0;
  // The exact bytes of one token, which may be part of a character; empty for an unknown id.
  virtual std::string TokenBytes(int32_t id) const = 0;

  virtual const ModelInfo& model() const = 0;
  // The state after the last step. Cheap enough to be asked many times a second.
  virtual EngineStats stats() const = 0;
  // Calls `on_snapshot` once, from the engine thread: when the step under way has ended, or at once
  // if there is none. It gets a state of that moment or of at most 0.1 s before, for no more than
  // ten are made in a second. Not called any more when the engine ends.
  virtual void Snapshot(SnapshotCallback on_snapshot) = 0;
  // How the steps have spent their time since the last call; empty without
  // EngineOptions::profile.
  virtual Profile TakeProfile() = 0;
  // OK while the engine can run requests. An error is for good: the device failed and did not
  // recover, every request that ran or waited ends with it, and new ones are refused. To go on,
  // start another process.
  virtual Status health() const = 0;
  // Names everything that the same answer depends on: weights, binary, ISA, options.
  virtual const std::string& system_fingerprint() const = 0;
  // Refuses new requests for good, lets running ones finish for `timeout_seconds`, then cancels
  // those that are left; returns when there are none. Not from a callback.
  virtual void Drain(double timeout_seconds) = 0;
};

}  // namespace tokamak
