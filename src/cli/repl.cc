#include "cli/repl.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/paths.h"
#include "cli/answer_text.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"
#include "cli/word_wrap.h"

namespace tokamak::cli {
namespace {

constexpr char kHelp[] =
    "  /system TEXT       start over with this system message (none: the model's default)\n"
    "  /clear             start over\n"
    "  /image FILE        add an image to the next message\n"
    "  /retry             answer the last message again\n"
    "  /temperature X     randomness; 0: always the most likely token (greedy)\n"
    "  /top-p X           keep the smallest set of tokens with this total probability\n"
    "  /max-tokens N      longest answer; 0: no limit\n"
    "  /seed N            the same seed gives the same answer; no number: a new seed each time\n"
    "  /stats             figures of the last answer and of the engine\n"
    "  /help              this list\n"
    "  /quit              end the program, like Ctrl-D\n"
    "\\ at the end of a line or Alt-Enter begins another line of the same message. What is pasted\n"
    "is one message. Ctrl-C stops an answer.\n";

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string HistoryFile() {
  const std::string directory = CacheDir();
  if (directory.empty()) return "";
  ::mkdir(directory.c_str(), 0700);  // if its parent is missing, there is no history
  return directory + "/history";
}

class Repl {
 public:
  Repl(Engine& engine, const SamplingParams& sampling, const std::string& system,
       std::vector<ImageData> images);

  int Run();

 private:
  void Answer();
  // Handles a command. False if the user wants to quit.
  bool Command(const std::string& line);
  void AddImage(const std::string& path);
  void PrintStats() const;
  void SetNumber(const std::string& name, const std::string& argument);

  Engine& engine_;
  SamplingParams sampling_;
  Conversation conversation_;
  std::vector<ImageData> images_;  // of the next message
  InterruptFlag interrupt_;
  Usage last_usage_;
  double first_token_seconds_ = 0;
  double total_seconds_ = 0;
};

Repl::Repl(Engine& engine, const SamplingParams& sampling, const std::string& system,
           std::vector<ImageData> images)
    : engine_(engine),
      sampling_(sampling),
      conversation_(engine.model(), system),
      images_(std::move(images)) {
  interrupt_.CatchEnds();
  // Reasoning marks may be special tokens. They must appear in the text, or the reasoning could not
  // be removed.
  for (const std::string_view mark : MarksOf(/*tools=*/nullptr, &conversation_.reasoning())) {
    const auto ids = engine.Tokenize(mark, /*add_special=*/false, /*parse_special=*/true);
    if (ids.ok() && ids->size() == 1) sampling_.shown_special_tokens.push_back(ids->front());
  }
}

// Whether a message is a command. A pasted text may begin with a file name.
bool IsCommand(const std::string& text) {
  return text.starts_with('/') &&
         (text.find('\n') == std::string::npos || text.starts_with("/system "));
}

int Repl::Run() {
  const ModelInfo& model = engine_.model();
  std::printf("%s on %s, %d threads, context %d. /help lists commands.\n", model.name.c_str(),
              model.backend.c_str(), model.threads, model.max_context);
  if (!conversation_.chat()) std::printf("Note: %s\n", conversation_.note().c_str());
  LineEditor editor(HistoryFile(), interrupt_);
  std::string pending;  // preceding lines that ended with a backslash
  for (;;) {
    std::string line;
    interrupt_.Clear();
    switch (editor.Read(pending.empty() ? "> " : ". ", &line)) {
      case LineEditor::Event::kEnd:
        std::printf("\n");
        return kOk;
      case LineEditor::Event::kInterrupt:
        std::printf("\n");
        pending.clear();
        continue;
      case LineEditor::Event::kLine:
        break;
    }
    if (line.ends_with('\\')) {
      pending += line.substr(0, line.size() - 1) + "\n";
      continue;
    }
    line = std::exchange(pending, "") + line;
    if (line.empty()) continue;
    if (IsCommand(line)) {
      if (!Command(line)) return kOk;
      continue;
    }
    conversation_.AddUser(line, std::exchange(images_, {}));
    Answer();
  }
}

void Repl::Answer() {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  AnswerText shown(engine_.model().chat_template);
  std::string text;
  WordWrap wrap;
  bool cancelled = false;
  first_token_seconds_ = 0;
  interrupt_.Clear();
  Result<Request> request = conversation_.MakeRequest(sampling_);
  if (!request.ok()) {
    Fail(request.status());
    conversation_.DropLast();
    return;
  }
  const Status status =
      Stream(engine_, *std::move(request), &interrupt_, [&](const OutputChunk& chunk) {
        if (first_token_seconds_ == 0) first_token_seconds_ = seconds();
        Print(wrap.Append(shown.Append(chunk.text), TerminalColumns()));
        text += chunk.text;
        last_usage_ = chunk.usage;
        cancelled |= chunk.finish_reason == FinishReason::kCancelled;
        return true;
      });
  total_seconds_ = seconds();
  Print(wrap.Append(shown.Finish(), TerminalColumns()) + wrap.Finish());
  std::printf(cancelled ? " [stopped]\n" : "\n");
  if (!status.ok()) {
    Fail(status);
    if (status.code() == StatusCode::kResourceExhausted) std::printf("/clear starts over.\n");
    conversation_.DropLast();
    return;
  }
  conversation_.AddAnswer(text);
}

bool Repl::Command(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(1, space == std::string::npos ? space : space - 1);
  const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
  if (name == "quit" || name == "exit" || name == "q") return false;
  if (name == "help" || name == "?") {
    std::fputs(kHelp, stdout);
  } else if (name == "clear") {
    conversation_.Clear();
  } else if (name == "image") {
    AddImage(argument);
  } else if (name == "system") {
    conversation_.SetSystem(argument);
  } else if (name == "retry") {
    if (conversation_.size() >= 2 && conversation_.DropLast()) {
      Answer();
    } else {
      std::printf("there is no message to retry\n");
    }
  } else if (name == "stats") {
    PrintStats();
  } else {
    SetNumber(name, argument);
  }
  return true;
}

void Repl::AddImage(const std::string& path) {
  Result<ImageData> image = ReadImage(engine_, path);
  if (!image.ok()) {
    Fail(image.status());
    return;
  }
  std::printf("%zu tokens; write the message that it belongs to\n", image->tokens.size());
  images_.push_back(*std::move(image));
}

void Repl::SetNumber(const std::string& name, const std::string& argument) {
  SamplingParams changed = sampling_;
  char* end = nullptr;
  const double number = std::strtod(argument.c_str(), &end);
  const bool valid = !argument.empty() && *end == '\0';
  if (name == "seed" && argument.empty()) {
    changed.seed.reset();
  } else if (name != "temperature" && name != "top-p" && name != "max-tokens" && name != "seed") {
    std::printf("there is no command /%s; /help lists all\n", name.c_str());
    return;
  } else if (!valid) {
    std::printf("/%s needs a number\n", name.c_str());
    return;
  } else if (name == "temperature") {
    changed.temperature = static_cast<float>(number);
  } else if (name == "top-p") {
    changed.top_p = static_cast<float>(number);
  } else if (!(number >= 0 && number <= 2147483647)) {
    std::printf("/%s must be in [0, 2147483647]\n", name.c_str());
    return;
  } else if (name == "seed") {
    changed.seed = static_cast<uint64_t>(number);
  } else {
    changed.max_tokens.reset();
    if (number > 0) changed.max_tokens = static_cast<int32_t>(number);
  }
  const ModelInfo& model = engine_.model();
  const Status status = Validate(changed, model.vocab_size, model.max_logprobs);
  if (!status.ok()) {
    std::printf("%s\n", std::string(status.message()).c_str());
    return;
  }
  sampling_ = changed;
}

void Repl::PrintStats() const {
  const double decode = total_seconds_ - first_token_seconds_;
  const int32_t tokens = last_usage_.completion_tokens;
  std::printf("last answer: %d prompt tokens (%d cached), first token after %.0f ms, %d tokens",
              last_usage_.prompt_tokens, last_usage_.cached_tokens, first_token_seconds_ * 1e3,
              tokens);
  if (tokens > 1 && decode > 0) std::printf(", %.1f tokens/s", (tokens - 1) / decode);
  const EngineStats stats = engine_.stats();
  std::printf("\nengine: %lld steps, KV blocks %d used + %d cached of %d, loaded in %.2f s\n",
              static_cast<long long>(stats.steps), stats.used_blocks, stats.cached_blocks,
              stats.total_blocks, engine_.model().load_seconds);
}

}  // namespace

int RunRepl(Engine& engine, const SamplingParams& sampling, const std::string& system,
            std::vector<ImageData> images) {
  return Repl(engine, sampling, system, std::move(images)).Run();
}

}  // namespace tokamak::cli
