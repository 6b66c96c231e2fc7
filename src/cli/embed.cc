// tokamak embed: texts as vectors.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json_output.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak embed all-MiniLM-L6-v2 --string \"A man eats.\" --string \"Someone dines.\" --json\n"
    "  tokamak embed Qwen3-Embedding-0.6B --text questions.txt --prompt-name query --json\n"
    "  cat lines.txt | tokamak embed all-MiniLM-L6-v2 > vectors.txt\n";

// Texts per request: enough to fill steps, few enough to print results soon.
constexpr size_t kTextsAtOnce = 256;

struct EmbedFlags {
  EngineOptions engine;
  std::string text_file;
  std::vector<std::string> strings;
  EmbeddingRequest request;  // everything except its inputs
  bool json = false;
};

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  for (std::string_view line : Split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  }
  if (text.empty() || text.ends_with('\n')) lines.pop_back();
  return lines;
}

void Print(size_t index, const std::vector<float>& vector, bool json) {
  if (json) {
    std::printf("%s\n", EmbedJson(index, vector).c_str());
  } else {
    std::printf("%s\n", fmt::format("{}", fmt::join(vector, " ")).c_str());
  }
}

Status EmbedAll(const EmbedFlags& flags, const std::vector<std::string>& texts,
                Embedder& embedder) {
  for (size_t first = 0; first < texts.size(); first += kTextsAtOnce) {
    EmbeddingRequest request = flags.request;
    const size_t end = std::min(texts.size(), first + kTextsAtOnce);
    for (size_t i = first; i < end; ++i) request.inputs.push_back({.text = texts[i]});
    Result<EmbeddingOutput> output = embedder.Embed(std::move(request));
    if (!output.ok()) {
      return first == 0 ? output.status()
                        : output.status().WithContext(fmt::format("from text {} on", first));
    }
    for (size_t i = first; i < end; ++i) Print(i, output->vectors[i - first], flags.json);
  }
  return Status();
}

int Run(const EmbedFlags& flags) {
  if (!flags.text_file.empty() && !flags.strings.empty()) {
    return UsageError("give either --text FILE or --string TEXT, not both");
  }
  std::vector<std::string> texts = flags.strings;
  if (texts.empty()) {
    const Result<std::string> text = ReadText(flags.text_file.empty() ? "-" : flags.text_file);
    if (!text.ok()) return Fail(text.status());
    texts = Lines(*text);
  }
  Result<std::unique_ptr<Embedder>> embedder = LoadEmbedder(flags.engine);
  if (!embedder.ok()) return Fail(embedder.status());
  const Status status = EmbedAll(flags, texts, **embedder);
  if (!status.ok()) return Fail(status);
  return kOk;
}

}  // namespace

void AddEmbedCommand(CommandLine& line) {
  auto flags = std::make_shared<EmbedFlags>();
  Flags f = line.Command("embed", "Turn texts into embedding vectors", kExamples,
                         [flags] { return Run(*flags); });
  f.Add("--text", flags->text_file, "File with one text per line; - is stdin (default)");
  f.Add("--string", flags->strings, "A text; repeatable");
  f.Add("--prompt-name", flags->request.prompt_name,
        "Name of the model's prompt to put before each text, such as query");
  f.Add("--dimensions", flags->request.dimensions,
        "Length of the vectors, for models that allow shorter ones");
  f.Add("--truncate", flags->request.truncate_prompt_tokens,
        "Cut texts to this many tokens; -1: to what the model takes. Without it longer texts are "
        "errors");
  f.Add("--parse-special", flags->request.parse_special_tokens,
        "Read \"[SEP]\" and the like in a text as special tokens");
  f.Add("--json", flags->json, "Print one JSON object per text: index, embedding");
  AddEngineFlags(f, flags->engine);
}

}  // namespace tokamak::cli
