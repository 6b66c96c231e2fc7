// Shared by several commands: the flags that shape an engine and its sampling, loading with
// progress, and how errors end a command.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/interrupt.h"
#include "tokamak/engine.h"

namespace tokamak::cli {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;         // the message is on stderr
inline constexpr int kUsage = 2;          // flags that do not go together
inline constexpr int kInterrupted = 130;  // by Ctrl-C, as shells have it

struct EngineFlags {
  EngineOptions options;  // model empty: the default one
  bool no_prefix_cache = false;
};

// MODEL and the options that every command with an engine takes.
void AddEngineFlags(Flags& flags, EngineFlags& engine);
void AddModel(Flags& flags, std::string& model);

// Sampling flags in text form where SamplingParams has lists of pairs.
struct SamplingFlags {
  SamplingParams params;
  SamplingDefaults given;               // what was named on the command line
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  std::optional<std::vector<int32_t>> stop_token_ids;
};
void AddSamplingFlags(Flags& flags, SamplingFlags& sampling);
// Each value comes from the flags, else from the checkpoint, else from `sampling.params`.
Result<SamplingParams> MakeSampling(const SamplingFlags& sampling,
                                    const SamplingDefaults& checkpoint = {});

// The model that was named, or the default one; an error that says how to get it when it is not
// there.
Result<std::string> ResolveModel(const std::string& model);

// Loads the engine; shows how far it is when stderr is a terminal.
Result<std::unique_ptr<Engine>> LoadEngine(const EngineFlags& flags);

// Prints "error: ..." to stderr and returns the exit code.
int Fail(const Status& status);
// The same for flags that do not go together.
int UsageError(std::string_view message);

// A file's text; "-" is stdin.
Result<std::string> ReadText(const std::string& path);

// Text between quotes, with control characters escaped: safe on a terminal.
std::string QuoteText(std::string_view text);

// Submits a request and calls `on_chunk` on this thread for every chunk until all choices have
// ended. When `interrupt` is raised or `on_chunk` returns false, the request is cancelled; its last
// chunks say so.
Status Stream(Engine& engine, Request request, const InterruptFlag* interrupt,
              const std::function<bool(OutputChunk)>& on_chunk);

}  // namespace tokamak::cli
