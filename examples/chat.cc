// A chat in the terminal with streamed answers. Ctrl-C ends the answer; Ctrl-D (end of input) ends
// the program.
//
//   chat MODEL.gguf
#include <tokamak/chat.h>
#include <tokamak/engine.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// Prints the answer while it is generated and returns it.
tokamak::Result<std::string> Answer(tokamak::Engine& engine, tokamak::Request request) {
  auto stream = engine.Stream(std::move(request));
  if (!stream.ok()) return stream.status();
  std::string whole;
  while (true) {
    const bool is_ready = stream->WaitFor(0.05);
    if (interrupted != 0) stream->Cancel();  // the request still ends with a last chunk
    if (!is_ready) continue;
    const auto chunk = stream->Next();
    if (!chunk) return whole;
    if (!chunk->error.ok()) return chunk->error;
    std::fputs(chunk->text.c_str(), stdout);
    std::fflush(stdout);
    whole += chunk->text;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: chat MODEL.gguf\n");
    return 2;
  }
  tokamak::EngineOptions options;
  options.model = argv[1];
  auto engine = tokamak::Engine::Load(options);
  if (!engine.ok()) {
    std::fprintf(stderr, "error: %s\n", engine.status().ToString().c_str());
    return 1;
  }
  std::signal(SIGINT, OnInterrupt);
  std::vector<tokamak::ChatMessage> messages;
  std::string line;
  while (std::fputs("> ", stdout), std::fflush(stdout), std::getline(std::cin, line)) {
    interrupted = 0;
    messages.push_back({"user", line});
    auto request = tokamak::MakeChatRequest((*engine)->model(), messages);
    tokamak::Result<std::string> answer = request.status();
    if (request.ok()) {
      request->sampling.max_tokens = 512;
      request->sampling.temperature = 0.7f;
      answer = Answer(**engine, *std::move(request));
    }
    std::printf("\n");
    if (answer.ok()) {
      messages.push_back({"assistant", *answer});
    } else {
      std::fprintf(stderr, "error: %s\n", answer.status().ToString().c_str());
      messages.pop_back();
    }
  }
  return 0;
}
