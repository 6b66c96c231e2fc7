// Continues all lines of a file at once, and prints the texts in order and the speed.
//
//   offline_batch MODEL.gguf PROMPTS.txt [MAX_TOKENS]
#include <tokamak/engine.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace {

// Submits all prompts, so that the engine runs them together, and waits for their answers.
tokamak::Result<std::vector<tokamak::OutputChunk>> GenerateAll(
    tokamak::Engine& engine, const std::vector<std::string>& prompts, int32_t max_tokens) {
  std::vector<tokamak::OutputStream> streams;
  for (const std::string& prompt : prompts) {
    tokamak::Request request;
    request.prompt = prompt;
    request.sampling.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    auto stream = engine.Stream(std::move(request));
    if (!stream.ok()) {
      return stream.status().WithContext("line " + std::to_string(streams.size() + 1));
    }
    streams.push_back(*std::move(stream));
  }
  std::vector<tokamak::OutputChunk> answers;
  for (tokamak::OutputStream& stream : streams) {
    std::string text;
    tokamak::OutputChunk last;
    while (auto chunk = stream.Next()) {
      text += chunk->text;
      last = *std::move(chunk);
    }
    if (!last.error.ok()) return last.error;
    last.text = std::move(text);
    answers.push_back(std::move(last));
  }
  return answers;
}

int Fail(const tokamak::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: offline_batch MODEL.gguf PROMPTS.txt [MAX_TOKENS]\n");
    return 2;
  }
  std::vector<std::string> prompts;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty()) {
    return Fail({tokamak::StatusCode::kNotFound, std::string(argv[2]) + ": no prompts"});
  }

  tokamak::EngineOptions options;
  options.model = argv[1];
  options.max_queue = static_cast<int32_t>(prompts.size());  // all prompts may wait
  auto engine = tokamak::Engine::Load(options);
  if (!engine.ok()) return Fail(engine.status());

  const auto start = std::chrono::steady_clock::now();
  const auto answers = GenerateAll(**engine, prompts, argc > 3 ? std::atoi(argv[3]) : 64);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!answers.ok()) return Fail(answers.status());

  int64_t prompt_tokens = 0, output_tokens = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const tokamak::OutputChunk& answer = (*answers)[i];
    std::printf("%s%s\n---\n", prompts[i].c_str(), answer.text.c_str());
    prompt_tokens += answer.usage.prompt_tokens;
    output_tokens += answer.usage.completion_tokens;
  }
  std::fprintf(stderr, "%zu prompts, %lld tokens in, %lld tokens out, %.2f s: %.1f tok/s out\n",
               prompts.size(), static_cast<long long>(prompt_tokens),
               static_cast<long long>(output_tokens), took.count(),
               static_cast<double>(output_tokens) / took.count());
  return 0;
}
