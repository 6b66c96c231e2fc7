#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "server/api.h"
#include "server/errors.h"

namespace tokamak {

namespace {

constexpr double kWatchSeconds = 0.5;    // between looks at the engine's health
constexpr double kLastWordsSeconds = 2;  // for clients to take in the last answers

}  // namespace

struct Server::Impl {
  Impl(Engine& e, ServerOptions o) : engine(e), options(std::move(o)) {}

  void WatchEngine();
  void OnShutdown();
  void DrainEngine(double seconds);

  Engine& engine;
  const ServerOptions options;
  std::unique_ptr<Api> api;
  std::unique_ptr<HttpServer> http;
  int shutdowns = 0;                  // I/O thread
  std::vector<std::thread> drainers;  // Engine::Drain blocks: the I/O thread must not call it
};

// Looks again and again: the engine may fail when no request is there to tell of it.
void Server::Impl::WatchEngine() {
  const Status health = engine.health();
  if (health.ok()) {
    http->PostAfter(kWatchSeconds, [this] { WatchEngine(); });
    return;
  }
  LogError("the engine has failed, the server ends: {}", health.ToString());
  DrainEngine(0);
}

// The first call drains, the second one cancels what still runs. An engine that drains takes
// nothing more, so it starts when it has what was being prepared.
void Server::Impl::OnShutdown() {
  using Seconds = std::chrono::duration<double>;
  ++shutdowns;
  if (shutdowns > 2) return;
  LogInfo("{}", shutdowns == 1 ? "finishing running requests; once more to cancel them"
                               : "cancelling running requests");
  if (shutdowns == 2) {
    api->AbandonPreparing();
    DrainEngine(0);
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + Seconds(options.drain_seconds);
  http->PostAfter(options.drain_seconds, [this] { api->AbandonPreparing(); });
  api->StartDraining([this, deadline] {
    DrainEngine(std::max(0.0, Seconds(deadline - std::chrono::steady_clock::now()).count()));
  });
  http->Drain();
}

void Server::Impl::DrainEngine(double seconds) {
  drainers.emplace_back([this, seconds] {
    engine.Drain(seconds);
    // Answers were posted before this; clients get a moment to take them in.
    http->Post([this] { http->PostAfter(kLastWordsSeconds, [this] { http->Stop(); }); });
  });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  impl_->api->Stop();  // what it posts goes to impl_->http
  for (std::thread& thread : impl_->drainers) thread.join();
}

Result<std::unique_ptr<Server>> Server::Create(Engine& engine, ServerOptions options) {
  Api::Options api_options;
  api_options.model_id = options.model_id.empty() ? engine.model().name : options.model_id;
  if (!options.api_key_file.empty()) {
    ASSIGN_OR_RETURN(api_options.keys, ApiKeys::FromFile(options.api_key_file));
  }
  ASSIGN_OR_RETURN(const bool loopback, HttpServer::IsLoopback(options.host));
  if (!loopback && options.api_key_file.empty() && !options.insecure) {
    return InvalidArgument(
        "--host {}: other machines could use this server without a key; give --api-key-file, or "
        "--insecure to allow it",
        options.host);
  }
  auto impl = std::make_unique<Impl>(engine, std::move(options));
  api_options.preparing = impl->options.preparing;
  api_options.post = [raw = impl.get()](std::function<void()> work) {
    raw->http->Post(std::move(work));  // there by the time that requests are
  };
  impl->api = std::make_unique<Api>(engine, std::move(api_options));
  HttpServer::Options http;
  http.host = impl->options.host;
  http.port = impl->options.port;
  http.limits = impl->options.limits;
  http.error_body = [](int status, const std::string& message) {
    return ErrorResponse(status, message).body;
  };
  const auto handler = [api = impl->api.get()](std::shared_ptr<HttpExchange> exchange) {
    api->Handle(std::move(exchange));
  };
  ASSIGN_OR_RETURN(impl->http, HttpServer::Listen(std::move(http), handler));
  impl->http->OnSignals([raw = impl.get()] { raw->OnShutdown(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->http->port(); }

Status Server::Run() {
  impl_->http->Post([impl = impl_.get()] { impl->WatchEngine(); });
  impl_->http->Run();
  return impl_->engine.health();
}

void Server::Shutdown() {
  impl_->http->Post([impl = impl_.get()] { impl->OnShutdown(); });
}

}  // namespace tokamak
