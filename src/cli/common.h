// Shared by several commands: flags for the engine and for sampling, loading with progress, and
// reporting of errors.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/interrupt.h"
#include "tokamak/embed.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;         // the message is on stderr
inline constexpr int kUsage = 2;          // flags that contradict each other
inline constexpr int kInterrupted = 130;  // by Ctrl-C; the exit code that shells use

// Adds MODEL and the options of all commands with an engine. An empty model means the default.
void AddEngineFlags(Flags& flags, EngineOptions& options);
void AddModel(Flags& flags, std::string& model);

// Sampling parameters from the command line; pairs are still text.
struct SamplingFlags {
  SamplingParams params;
  SamplingDefaults given;               // those given on the command line
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  std::optional<std::vector<int32_t>> stop_token_ids, allowed_token_ids;
  std::optional<int32_t> num_beams;
  std::optional<float> length_penalty;
  EarlyStopping early_stopping = EarlyStopping::kNo;
};
void AddSamplingFlags(Flags& flags, SamplingFlags& sampling);
// Adds --mm-processor-kwargs.
void AddImageOptions(Flags& flags, ImageOptions& options);
// Adds a flag for each default but max_tokens.
void AddDefaultSamplingFlags(Flags& flags, SamplingDefaults& sampling);
// Takes each value from the flags, else from the checkpoint, else from `sampling.params`.
Result<SamplingParams> MakeSampling(const SamplingFlags& sampling,
                                    const SamplingDefaults& checkpoint = {});

// Returns the given model or the default. If the default is not on this machine, the error says how
// to get it.
Result<std::string> ResolveModel(const std::string& model);

// Load the model, or the default one, and show progress if stderr is a terminal.
Result<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options);
Result<std::unique_ptr<Embedder>> LoadEmbedder(const EngineOptions& options);

// Returns a message of the library with flags in place of the options' fields: "device: must be"
// and "device=cpu" become "--device: must be" and "--device=cpu", "max_seqs" becomes "--max-seqs".
std::string WithFlags(std::string_view message);

// Prints "error: ...", with flags, to stderr and returns the exit code.
int Fail(const Status& status);
// The same for flags that contradict each other.
int UsageError(std::string_view message);

// Returns a file's text; "-" is stdin.
Result<std::string> ReadText(const std::string& path);

// Reads an image and prepares it for the model. Errors name the file.
Result<ImageData> ReadImage(const Engine& engine, const std::string& path);

// Returns the text in quotes with control characters escaped, safe to print on a terminal.
std::string QuoteText(std::string_view text);

// Submits a request and calls `on_chunk` on this thread for each chunk until all choices have
// ended. Cancels the request if `interrupt` is raised or `on_chunk` returns false; its last chunks
// then say so.
Status Stream(Engine& engine, Request request, const InterruptFlag* interrupt,
              const std::function<bool(OutputChunk)>& on_chunk);

}  // namespace tokamak::cli
