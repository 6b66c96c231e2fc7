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
#include <memory>
#include <string_view>
#include <vector>

#include "tokamak/engine_options.h"
#include "tokamak/loaded_model.h"
#include "tokamak/output_stream.h"
#include "tokamak/request.h"

namespace tokamak {

// Generates. Thread-safe, except for the destructor.
class Engine : public LoadedModel {
 public:
  // Reads the model on the calling thread (milliseconds to minutes) and starts the engine's
  // threads. A process may have several engines. Errors name the option, the file or the tensor:
  // kNotFound and kDataLoss for files, kInvalidArgument for options, kUnimplemented for what this
  // build or machine cannot run and for models that embed, kResourceExhausted (with the numbers)
  // for what does not fit into memory.
  static Result<std::unique_ptr<Engine>> Load(const EngineOptions& options);

  // Queues a request and returns its id, which is unique within this engine. Does not wait. Text is
  // tokenized, and images are prepared, on the calling thread.
  //
  // If the request is accepted, `on_output` is called on the engine thread, perhaps before Submit
  // returns, until every choice has had its last chunk. No request advances while it runs, so it
  // must return quickly, and must not wait or throw. It may call Submit, Cancel, Pause and Resume,
  // but not Generate, Drain or OutputStream::Next.
  //
  // Errors, with the numbers: kInvalidArgument for parameters (the message starts with the field);
  // kUnimplemented for text if the model has no tokenizer; kResourceExhausted for a request that
  // can never run (too long for the context or the whole cache); kUnavailable if the queue is full,
  // or the engine drains or has failed.
  virtual Result<RequestId> Submit(Request request, OutputCallback on_output) = 0;
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

  // With EngineOptions::data_parallel: the state of each replica. stats() is their sum.
  virtual std::vector<EngineStats> replica_stats() const = 0;
  // A replica that drains gets no new requests; those that it has go on. `drain` false: it gets
  // requests again. While all replicas drain, Submit is kUnavailable. kInvalidArgument if there is
  // no such replica.
  virtual Status DrainReplica(int32_t replica, bool drain) = 0;

  // Compiles a structured output on the calling thread, as Submit would, and keeps the result for
  // later requests with the same one, as long as there is room. kInvalidArgument for what is wrong
  // and kUnimplemented for what cannot be guaranteed; the message starts with the path of it
  // ("structured_output.properties.a: ...").
  virtual Status PrepareStructuredOutput(const StructuredOutput& output) const = 0;

  // Decodes an image and prepares it for the model, on the calling thread, as Submit would. The
  // result may be part of any number of requests to this engine. kInvalidArgument if the model
  // takes only text or no such options, or the file is not an image; kDataLoss for a broken file;
  // kResourceExhausted beyond a limit of ModelInfo::images; kUnavailable while images that wait
  // take too much memory.
  virtual Result<ImageData> PrepareImage(std::string_view bytes,
                                         const ImageOptions& options) const = 0;
  Result<ImageData> PrepareImage(std::string_view bytes) const { return PrepareImage(bytes, {}); }
};

}  // namespace tokamak
