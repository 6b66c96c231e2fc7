// Continues all lines of a file at once, and prints the texts in order and the speed.
//
//   offline_batch MODEL.gguf PROMPTS.txt [MAX_TOKENS]
#include <tokamak/engine.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Response {
  std::string text;
  tokamak::Status error;
  tokamak::Usage usage;
};

// Written by the engine thread; read by the main thread when no request is open any more.
struct Batch {
  std::mutex mutex;
  std::condition_variable all_ended;
  std::vector<Response> responses;
  size_t open = 0;
};

// Called on the engine thread for each chunk. Takes what it needs and returns quickly.
void Take(Batch& batch, size_t i, const tokamak::OutputChunk& chunk) {
  const std::lock_guard<std::mutex> lock(batch.mutex);
  Response& response = batch.responses[i];
  response.text += chunk.text;
  if (!chunk.finish_reason) return;
  response.error = chunk.error;  // OK unless the reason is kError
  response.usage = chunk.usage;
  if (--batch.open == 0) batch.all_ended.notify_all();
}

// Submits all prompts and waits until they end. Returns the error of the first refused prompt.
tokamak::Status GenerateAll(tokamak::Engine& engine, const std::vector<std::string>& prompts,
                            int32_t max_tokens, Batch& batch) {
  batch.responses.resize(prompts.size());
  tokamak::Status refused;
  for (size_t i = 0; i < prompts.size() && refused.ok(); ++i) {
    tokamak::Request request;
    request.prompt = prompts[i];
    request.sampling.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    {
      const std::lock_guard<std::mutex> lock(batch.mutex);
      ++batch.open;
    }
    const auto id = engine.Submit(
        std::move(request), [&batch, i](const tokamak::OutputChunk& c) { Take(batch, i, c); });
    if (id.ok()) continue;
    refused = id.status().WithContext("line " + std::to_string(i + 1));
    const std::lock_guard<std::mutex> lock(batch.mutex);
    --batch.open;
  }
  // Accepted requests end even if others were refused, and `batch` must outlive them.
  std::unique_lock<std::mutex> lock(batch.mutex);
  batch.all_ended.wait(lock, [&] { return batch.open == 0; });
  return refused;
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

  Batch batch;
  const auto start = std::chrono::steady_clock::now();
  const tokamak::Status status =
      GenerateAll(**engine, prompts, argc > 3 ? std::atoi(argv[3]) : 64, batch);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!status.ok()) return Fail(status);

  int64_t prompt_tokens = 0, output_tokens = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Response& response = batch.responses[i];
    if (!response.error.ok()) return Fail(response.error);
    std::printf("%s%s\n---\n", prompts[i].c_str(), response.text.c_str());
    prompt_tokens += response.usage.prompt_tokens;
    output_tokens += response.usage.completion_tokens;
  }
  std::fprintf(stderr, "%zu prompts, %lld tokens in, %lld tokens out, %.2f s: %.1f tok/s out\n",
               prompts.size(), static_cast<long long>(prompt_tokens),
               static_cast<long long>(output_tokens), took.count(),
               static_cast<double>(output_tokens) / took.count());
  return 0;
}
