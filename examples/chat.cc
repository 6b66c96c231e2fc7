// A chat in the terminal with streamed answers. Ctrl-C ends the answer; Ctrl-D (end of input) ends
// the program.
//
//   chat MODEL.gguf
#include <tokamak/chat.h>
#include <tokamak/engine.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

// The current answer. The engine thread appends to it, the main thread prints it.
struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::string unprinted;
  bool ended = false;
  tokamak::Status error;
};

// Prints the answer while it is generated and returns it. Callbacks should not print: a slow
// terminal would hold up the engine and every other request.
tokamak::Result<std::string> Answer(tokamak::Engine& engine, tokamak::Request request) {
  Stream stream;
  const auto id = engine.Submit(std::move(request), [&stream](const tokamak::OutputChunk& chunk) {
    const std::lock_guard<std::mutex> lock(stream.mutex);
    stream.unprinted += chunk.text;
    if (chunk.finish_reason) {
      stream.ended = true;
      stream.error = chunk.error;
    }
    stream.changed.notify_one();
  });
  if (!id.ok()) return id.status();
  std::string whole;
  bool cancelled = false;
  std::unique_lock<std::mutex> lock(stream.mutex);
  while (!stream.ended || !stream.unprinted.empty()) {
    // A signal handler must not notify, so check its flag from time to time.
    stream.changed.wait_for(lock, std::chrono::milliseconds(50));
    const std::string text = std::exchange(stream.unprinted, std::string());
    lock.unlock();
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    whole += text;
    if (interrupted != 0 && !cancelled) {
      engine.Cancel(*id);  // the request still ends with a last chunk
      cancelled = true;
    }
    lock.lock();
  }
  if (!stream.error.ok()) return stream.error;
  return whole;
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
