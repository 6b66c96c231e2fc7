// tokamak run: chat in the terminal, or answer one prompt.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>

#include "base/error.h"
#include "cli/answer_text.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/conversation.h"
#include "cli/json_output.h"
#include "cli/repl.h"
#include "cli/word_wrap.h"
#include "local/merge_chunks.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak run                                   chat with the default model\n"
    "  tokamak run model.gguf -p \"Why is the sky blue?\"\n"
    "  echo \"Why is the sky blue?\" | tokamak run     the same, from a pipe\n"
    "  tokamak run --raw -p \"Once upon a time\" --max-tokens 50\n"
    "  tokamak run --token-ids 1,2,3 --max-tokens 8 --temperature 0 --json\n";

struct RunFlags {
  EngineOptions engine;
  SamplingFlags sampling;
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> token_ids;
  std::string system;
  bool raw = false;
  bool json = false;
};

// Reads the prompt from --prompt or stdin.
Result<std::string> ReadPrompt(const RunFlags& flags) {
  if (flags.prompt && *flags.prompt != "-") return *flags.prompt;
  ASSIGN_OR_RETURN(std::string text, ReadText("-"));
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty()) {
    return InvalidArgument(
        "stdin: there is no prompt; give one with --prompt TEXT or through a pipe, or run this in "
        "a terminal to chat");
  }
  return text;
}

Result<Request> MakeRequest(const RunFlags& flags, std::string text, const SamplingParams& sampling,
                            const Engine& engine) {
  Request request;
  request.sampling = sampling;
  if (flags.token_ids) {
    request.token_ids = *flags.token_ids;
    return request;
  }
  if (flags.raw) {
    request.prompt = std::move(text);
    request.parse_special_tokens = true;
    return request;
  }
  Conversation conversation(engine.model(), flags.system);
  conversation.AddUser(std::move(text));
  return conversation.MakeRequest(sampling);
}

// Prints one answer: as it arrives, or at the end for several choices and for JSON. `chat_template`
// is empty for plain completion.
int AnswerOnce(Engine& engine, Request request, std::string_view chat_template, bool json) {
  InterruptFlag interrupt;
  const bool stream = !json && request.sampling.n == 1;
  std::map<int32_t, OutputChunk> answers;
  AnswerText shown(chat_template);
  WordWrap wrap;
  bool cancelled = false;
  Status written;
  const Status status = Stream(engine, std::move(request), &interrupt, [&](OutputChunk chunk) {
    cancelled |= chunk.finish_reason == FinishReason::kCancelled;
    if (stream && written.ok()) {
      std::string piece = wrap.Append(shown.Append(chunk.text), TerminalColumns());
      if (chunk.finish_reason) {
        piece += wrap.Append(shown.Finish(), TerminalColumns()) + wrap.Finish();
      }
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      written = FlushOutput();
    }
    OutputChunk& answer = answers[chunk.choice];
    MergeChunk(std::move(chunk), &answer);
    return written.ok();
  });
  if (!written.ok()) return Fail(written);
  if (!status.ok()) return Fail(status);
  if (json) {
    for (const auto& [choice, answer] : answers) {
      std::printf("%s\n", RunJson(answer, engine.system_fingerprint()).c_str());
    }
  } else if (stream) {
    std::printf("\n");
  } else {
    for (const auto& [choice, answer] : answers) {
      AnswerText whole(chat_template);
      const std::string text = whole.Append(answer.text) + whole.Finish();
      std::printf("--- %d\n%s\n", choice, text.c_str());
    }
  }
  return cancelled ? kInterrupted : kOk;
}

int Run(const RunFlags& flags) {
  if (flags.prompt && flags.token_ids) {
    return UsageError("give either --prompt or --token-ids, not both");
  }
  if (flags.raw && !flags.system.empty()) {
    return UsageError(
        "--system needs a conversation, and --raw completes plain text; give one of them");
  }
  const Status usable = MakeSampling(flags.sampling).status();
  if (!usable.ok()) return UsageError(usable.message());
  const bool once = flags.prompt || flags.token_ids || flags.json || ::isatty(STDIN_FILENO) == 0;
  std::string text;
  if (once && !flags.token_ids) {
    Result<std::string> prompt = ReadPrompt(flags);
    if (!prompt.ok()) return UsageError(prompt.status().message());
    text = *std::move(prompt);
  }
  Result<std::unique_ptr<Engine>> engine = LoadEngine(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  Result<SamplingParams> sampling = MakeSampling(flags.sampling, (*engine)->model().sampling);
  if (flags.json && !sampling->logprobs) sampling->logprobs = 0;
  const Status valid = Validate(*sampling, (*engine)->model().vocab_size);
  if (!valid.ok()) return UsageError(valid.message());
  if (!once) return RunRepl(**engine, *sampling, flags.system);
  Result<Request> request = MakeRequest(flags, std::move(text), *sampling, **engine);
  if (!request.ok()) return Fail(request.status());
  const bool raw = flags.raw || flags.token_ids;
  return AnswerOnce(**engine, *std::move(request),
                    raw ? std::string_view() : (*engine)->model().chat_template, flags.json);
}

}  // namespace

void AddRunCommand(CommandLine& line) {
  auto flags = std::make_shared<RunFlags>();
  flags->sampling.params.temperature = 0.7f;  // gives good answers with small models
  flags->sampling.params.top_p = 0.95f;
  Flags f = line.Command("run", "Chat in the terminal, or answer one prompt", kExamples,
                         [flags] { return Run(*flags); });
  f.Add("-p,--prompt", flags->prompt, "Answer this prompt and exit; - reads it from stdin");
  f.Add("--token-ids", flags->token_ids, "Continue exactly these tokens and exit");
  f.Add("--raw", flags->raw, "Complete the prompt as plain text instead of a conversation");
  f.Add("--system", flags->system, "The system message");
  f.Add("--json", flags->json, "Print one JSON object per answer");
  AddEngineFlags(f, flags->engine);
  AddSamplingFlags(f, flags->sampling);
}

}  // namespace tokamak::cli
