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
    "  tokamak run llava --image cat.jpg -p \"What is it?\"\n"
    "  tokamak run -p \"Invent a person.\" --json-schema person.json\n"
    "  tokamak run --raw -p \"Once upon a time\" --max-tokens 50\n"
    "  tokamak run --token-ids 1,2,3 --max-tokens 8 --temperature 0 --json\n";

// Files, except for the regular expression. At most one is given.
struct StructureFlags {
  std::optional<std::string> json_schema, grammar, regex;
};

struct RunFlags {
  EngineOptions engine{.max_logprobs = -1};
  SamplingFlags sampling;
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> token_ids;
  StructureFlags structure;
  std::string system;
  std::vector<std::string> images;  // files
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

Result<std::optional<StructuredOutput>> ReadStructure(const StructureFlags& flags) {
  if (flags.json_schema.has_value() + flags.grammar.has_value() + flags.regex.has_value() > 1) {
    return InvalidArgument("give one of --json-schema, --grammar and --regex");
  }
  std::optional<StructuredOutput> output;
  if (flags.regex) output = {.kind = StructuredOutput::Kind::kRegex, .text = *flags.regex};
  if (flags.json_schema) {
    ASSIGN_OR_RETURN(std::string text, ReadText(*flags.json_schema));
    output = {.kind = StructuredOutput::Kind::kJsonSchema, .text = std::move(text)};
  }
  if (flags.grammar) {
    ASSIGN_OR_RETURN(std::string text, ReadText(*flags.grammar));
    output = {.kind = StructuredOutput::Kind::kGrammar, .text = std::move(text)};
  }
  return output;
}

Result<Request> MakeRequest(const RunFlags& flags, std::string text, const SamplingParams& sampling,
                            const Engine& engine, std::vector<ImageData> images) {
  if (!flags.token_ids && !flags.raw) {
    Conversation conversation(engine.model(), flags.system);
    conversation.AddUser(std::move(text), std::move(images));
    return conversation.MakeRequest(sampling);
  }
  Request request;
  request.sampling = sampling;
  request.images = std::move(images);
  if (flags.token_ids) {
    request.token_ids = *flags.token_ids;
  } else {
    request.prompt = std::move(text);
    request.parse_special_tokens = true;
  }
  return request;
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
  Result<std::optional<StructuredOutput>> structure = ReadStructure(flags.structure);
  if (!structure.ok()) return UsageError(structure.status().message());
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
  sampling->structured_output = *std::move(structure);
  const ModelInfo& model = (*engine)->model();
  Status valid = Validate(*sampling, model.vocab_size, model.max_logprobs);
  if (valid.ok() && sampling->structured_output) {
    valid = (*engine)->PrepareStructuredOutput(*sampling->structured_output);
  }
  if (!valid.ok()) return UsageError(WithFlags(valid.message()));
  std::vector<ImageData> images;
  for (const std::string& path : flags.images) {
    Result<ImageData> image = ReadImage(**engine, path);
    if (!image.ok()) return Fail(image.status());
    images.push_back(*std::move(image));
  }
  if (!once) return RunRepl(**engine, *sampling, flags.system, std::move(images));
  Result<Request> request =
      MakeRequest(flags, std::move(text), *sampling, **engine, std::move(images));
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
  f.Add("--image", flags->images,
        "File with an image for the prompt, or the first message; repeatable. With --raw and "
        "--token-ids the prompt has the model's placeholder for each");
  AddImageOptions(f, flags->engine.image_options);
  f.Add("--json", flags->json, "Print one JSON object per answer");
  f.Add("--json-schema", flags->structure.json_schema,
        "Answer with JSON that is valid under the schema in this file");
  f.Add("--grammar", flags->structure.grammar,
        "Answer with a sentence of the grammar in this file, which is in llama.cpp's GBNF");
  f.Add("--regex", flags->structure.regex,
        "Answer with a text that matches this regular expression as a whole");
  AddEngineFlags(f, flags->engine);
  AddSamplingFlags(f, flags->sampling);
}

}  // namespace tokamak::cli
