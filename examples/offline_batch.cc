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
  if (prompts.empty()) return Fail({tokamak::StatusCode::kNotFound, "there are no prompts"});

  auto engine = tokamak::Engine::Load(
      {.model = argv[1], .max_queue = static_cast<int32_t>(prompts.size())});  // all may wait
  if (!engine.ok()) return Fail(engine.status());

  // Submits all prompts before it waits for the first, so that the engine runs them together.
  const auto start = std::chrono::steady_clock::now();
  std::vector<tokamak::OutputStream> streams;
  for (const std::string& prompt : prompts) {
    auto stream = (*engine)->Stream(
        {.prompt = prompt,
         .sampling = {.temperature = 0, .max_tokens = argc > 3 ? std::atoi(argv[3]) : 64}});
    if (!stream.ok()) return Fail(stream.status().WithContext(prompt));
    streams.push_back(*std::move(stream));
  }
  int prompt_tokens = 0, output_tokens = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const tokamak::OutputChunk answer = streams[i].Collect().front();
    if (!answer.error.ok()) return Fail(answer.error.WithContext(prompts[i]));
    std::printf("%s%s\n---\n", prompts[i].c_str(), answer.text.c_str());
    prompt_tokens += answer.usage.prompt_tokens;
    output_tokens += answer.usage.completion_tokens;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::fprintf(stderr, "%zu prompts, %d tokens in, %d tokens out, %.2f s: %.1f tok/s out\n",
               prompts.size(), prompt_tokens, output_tokens, took.count(),
               output_tokens / took.count());
  return 0;
}
