#include "server/server.h"

#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "server/api.h"
#include "server/errors.h"

namespace tokamak {

struct Server::Impl {
  Impl(Engine& e, ServerOptions o, Api::Options api_options)
      : engine(e), options(std::move(o)), api(e, std::move(api_options)) {}

  void OnShutdown();
  void DrainEngine(double seconds);

  Engine& engine;
  const ServerOptions options;
  Api api;
  std::unique_ptr<HttpServer> http;
  int shutdowns = 0;                  // I/O thread
  std::vector<std::thread> drainers;  // Engine::Drain blocks: the I/O thread must not call it
};

// The first call drains, the second one cancels what still runs.
void Server::Impl::OnShutdown() {
  ++shutdowns;
  if (shutdowns > 2) return;
  LogInfo("{}", shutdowns == 1 ? "finishing running requests; once more to cancel them"
                               : "cancelling running requests");
  api.StartDraining();
  DrainEngine(shutdowns == 1 ? options.drain_seconds : 0);
  if (shutdowns == 1) http->Drain();
}

void Server::Impl::DrainEngine(double seconds) {
  drainers.emplace_back([this, seconds] {
    engine.Drain(seconds);
    // Answers were posted before this; clients get a moment to take them in.
    http->Post([this] { http->PostAfter(2, [this] { http->Stop(); }); });
  });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
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
  auto impl = std::make_unique<Impl>(engine, std::move(options), std::move(api_options));
  HttpServer::Options http;
  http.host = impl->options.host;
  http.port = impl->options.port;
  http.limits = impl->options.limits;
  http.error_body = [](int status, const std::string& message) {
    return ErrorResponse(status, message).body;
  };
  const auto handler = [api = &impl->api](std::shared_ptr<HttpExchange> exchange) {
    api->Handle(std::move(exchange));
  };
  ASSIGN_OR_RETURN(impl->http, HttpServer::Listen(std::move(http), handler));
  impl->http->OnSignals([raw = impl.get()] { raw->OnShutdown(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->http->port(); }

void Server::Run() { impl_->http->Run(); }

void Server::Shutdown() {
  impl_->http->Post([impl = impl_.get()] { impl->OnShutdown(); });
}

}  // namespace tokamak
