// Serves the OpenAI-compatible API from a program that also uses the engine itself. On SIGINT or
// SIGTERM, running requests finish before it exits.
//
//   embedded_server MODEL.gguf [PORT]
#include <tokamak/engine.h>
#include <tokamak/server.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

int Fail(const tokamak::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: embedded_server MODEL.gguf [PORT]\n");
    return 2;
  }
  // Block these signals before other threads start and inherit the mask, so that sigwait below
  // receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  auto engine = tokamak::Engine::Load({.model = argv[1]});
  if (!engine.ok()) return Fail(engine.status());
  auto server = tokamak::EmbeddedServer::Start(
      **engine, {.port = static_cast<uint16_t>(argc > 2 ? std::atoi(argv[2]) : 8080)});
  if (!server.ok()) return Fail(server.status());
  std::printf("serving at http://127.0.0.1:%d\n", (*server)->port());

  // The program's own requests share batches with those of clients.
  const auto answer = (*engine)->Generate(
      {.prompt = "The capital of France is", .sampling = {.temperature = 0, .max_tokens = 8}});
  if (!answer.ok()) return Fail(answer.status());
  std::printf("The capital of France is%s\n", answer->front().text.c_str());
  std::fflush(stdout);

  std::thread([&signals, &server] {
    for (int number = 0; sigwait(&signals, &number) == 0;) (*server)->Shutdown();
  }).detach();
  const tokamak::Status status = (*server)->Wait();
  if (!status.ok()) return Fail(status);
  std::fflush(nullptr);
  std::_Exit(0);  // skips destructors: the thread above still waits for signals
}
