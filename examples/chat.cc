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

int Fail(const tokamak::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return 1;
}

// Prints the answer while it is generated and returns it.
tokamak::Result<std::string> Answer(tokamak::Engine& engine,
                                    const std::vector<tokamak::ChatMessage>& messages) {
  auto request = tokamak::MakeChatRequest(engine.model(), messages);
  if (!request.ok()) return request.status();
  engine.model().sampling.ApplyTo(request->sampling);  // as the model's authors recommend
  request->sampling.max_tokens = 512;
  auto stream = engine.Stream(*std::move(request));
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
  auto engine = tokamak::Engine::Load({.model = argv[1]});
  if (!engine.ok()) return Fail(engine.status());
  std::signal(SIGINT, OnInterrupt);
  std::vector<tokamak::ChatMessage> messages;
  std::string line;
  while (std::fputs("> ", stdout), std::fflush(stdout), std::getline(std::cin, line)) {
    interrupted = 0;
    messages.push_back({"user", line});
    const auto answer = Answer(**engine, messages);
    if (!answer.ok()) return Fail(answer.status());
    messages.push_back({"assistant", *answer});
    std::printf("\n");
  }
  return 0;
}
