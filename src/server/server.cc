#include "server/server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/errors.h"
#include "server/monitor/observer.h"
#include "server/page/page.h"
#include "server/routes.h"
#include "server/transport/http_server.h"

namespace tokamak {

namespace {

constexpr double kWatchSeconds = 0.5;  // between checks of the engine's health
constexpr double kMaxDrainSeconds = 1'000'000;
constexpr double kLastWordsSeconds = 2;  // for clients to read the last responses
// Longest time from the end of draining to the end of Run: the engine or a thread may be stuck.
constexpr double kMostLastSeconds = 10;

// Returns whether this process has a terminal that can hang up. Must be called before it does.
bool HasTerminal() {
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) ::close(terminal);
  return terminal >= 0;
}

// Returns true under nohup.
bool IgnoresHangups() {
  struct sigaction action {};
  return ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

struct Server::Impl {
  Impl(ServedModel s, ServerOptions o, Access a, std::unique_ptr<AccessLog> access_log)
      : loaded(s.loaded),
        options(std::move(o)),
        access(std::move(a)),
        observer(std::move(access_log)) {}

  Status Listen(const std::string& ip);
  Awaitable<> Handle(ResponseWriter& writer);
  void Reload();
  void OnHangup();
  void WatchEngine();
  void OnShutdown();
  void Tell(const char* what) const;
  void DrainEngine(double seconds);
  // Whether SIGHUP has anything to read again.
  bool HasFiles() const { return access.has_keys() || !options.tls_cert_file.empty(); }

  LoadedModel& loaded;
  const ServerOptions options;
  Access access;      // I/O thread
  Observer observer;  // I/O thread
  std::unique_ptr<Routes> routes;
  std::unique_ptr<HttpServer> http;
  const bool has_terminal = HasTerminal();
  int shutdowns = 0;                  // I/O thread
  bool ended = false;                 // Run has returned: drop work that was posted and has not run
  std::vector<std::thread> drainers;  // Drain blocks: the I/O thread must not call it
};

Status Server::Impl::Listen(const std::string& ip) {
  HttpServer::Options http_options;
  http_options.host = ip;
  http_options.port = options.port;
  http_options.tls_cert_file = options.tls_cert_file;
  http_options.tls_key_file = options.tls_key_file;
  http_options.limits = options.limits;
  http_options.error_response = [this](const HttpRequest& request, int status,
                                       const std::string& message) {
    HttpResponse response = ErrorResponse(status, message);
    observer.OnRefused(request.method, request.path, status, response.body.size());
    return response;
  };
  http_options.check_head = [this](const HttpRequest& request) {
    std::optional<HttpResponse> refusal = access.Check(request);
    if (refusal) {
      observer.OnRefused(request.method, request.path, refusal->status, refusal->body.size());
    }
    return refusal;
  };
  http_options.decorate = [this](const HttpRequest& request, HttpResponse& response) {
    observer.OnResponse(response.status);
    access.Decorate(request, response);
  };
  const auto handler = [this](ResponseWriter& writer) { return Handle(writer); };
  ASSIGN_OR_RETURN(http, HttpServer::Listen(std::move(http_options), handler));
  if (!options.handle_signals) return Status();
  http->OnSignals([this] { OnShutdown(); });
  // Under nohup, a hangup that would end the server is ignored.
  if (HasFiles() || !IgnoresHangups()) http->OnHangup([this] { OnHangup(); });
  return Status();
}

Awaitable<> Server::Impl::Handle(ResponseWriter& writer) {
  const Observer::Request line(observer, writer);
  co_await routes->Handle(writer);
}

// Both the shell and the system may report that a terminal closes. The second signal must not
// cancel running requests.
void Server::Impl::OnHangup() {
  if (HasFiles()) return Reload();
  if (!has_terminal) {
    LogWarning("SIGHUP: there are no keys and no certificate to read again");
  } else if (shutdowns == 0) {
    OnShutdown();
  }
}

void Server::Impl::Reload() {
  if (const Status status = access.ReloadKeys(); !status.ok()) {
    LogError("the old API keys stay in use: {}", status.message());
  } else if (access.has_keys()) {
    LogInfo("the API keys were read again");
  }
  http->ReloadTls();
}

// Checks again and again, because the engine may fail while there are no requests.
void Server::Impl::WatchEngine() {
  if (ended) return;
  const Status health = loaded.health();
  if (health.ok()) {
    http->PostAfter(kWatchSeconds, [this] { WatchEngine(); });
    return;
  }
  LogError("the engine has failed, the server ends: {}", health.ToString());
  DrainEngine(0);
}

// Tells the user at the terminal, who has just pressed Ctrl-C; the line shows ^C. Without a
// terminal it goes to the log.
void Server::Impl::Tell(const char* what) const {
  if (!options.handle_signals || ::isatty(STDERR_FILENO) == 0) return LogInfo("{}", what);
  std::fprintf(stderr, "\ntokamak: %s\n", what);
}

// The first call drains, the second one cancels running requests. An engine that drains accepts
// nothing more, so draining starts when it has all requests that were being prepared.
void Server::Impl::OnShutdown() {
  using Seconds = std::chrono::duration<double>;
  ++shutdowns;
  if (ended) return;
  if (shutdowns > 2) return http->Stop();
  Tell(shutdowns == 1 ? "finishing running requests; once more to cancel them"
                      : "cancelling running requests");
  if (shutdowns == 2) {
    routes->AbandonPreparing();
    DrainEngine(0);
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + Seconds(options.drain_seconds);
  http->PostAfter(options.drain_seconds, [this] { routes->AbandonPreparing(); });
  routes->StartDraining([this, deadline] {
    DrainEngine(std::max(0.0, Seconds(deadline - std::chrono::steady_clock::now()).count()));
  });
  http->Drain();
}

void Server::Impl::DrainEngine(double seconds) {
  http->PostAfter(seconds + kMostLastSeconds, [this] { http->Stop(); });
  drainers.emplace_back([this, seconds] {
    loaded.Drain(seconds);
    // Responses were posted before this. After long ones are written, clients get a moment to read
    // them.
    http->Post([this] {
      routes->WhenTextsAreMade(
          [this] { http->PostAfter(kLastWordsSeconds, [this] { http->Stop(); }); });
    });
  });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  impl_->ended = true;  // the destructor of `http` runs work that is left
  impl_->routes->Stop();
  for (std::thread& thread : impl_->drainers) thread.join();
}

Status CheckRanges(const ServerOptions& options) {
  const std::pair<const char*, int64_t> limits[] = {
      {"max_connections", options.max_connections},
      {"max_connections_per_client", options.max_connections_per_client},
      {"max_body_bytes", options.max_body_bytes},
      {"max_choices", options.max_choices},
      {"max_answer_bytes", options.requests.max_answer_bytes}};
  for (const auto& [field, value] : limits) {
    if (value < 1) return InvalidArgument("{}: must be at least 1, got {}", field, value);
  }
  if (options.max_output_tokens < 0) {
    return InvalidArgument("max_output_tokens: must not be negative");
  }
  if (!(options.drain_seconds >= 0 && options.drain_seconds <= kMaxDrainSeconds)) {
    return InvalidArgument("drain_seconds: must be in [0, {}], got {}", kMaxDrainSeconds,
                           options.drain_seconds);
  }
  return Status();
}

size_t MaxOpenSockets(const ServerOptions& options) {
  const bool fetches = !options.allow_image_hosts.empty();
  return static_cast<size_t>(options.max_connections) +
         (fetches ? WebClient::Options().max_open_sockets() : 0);
}

Result<std::unique_ptr<Server>> Server::Create(ServedModel served, ServerOptions options) {
  RETURN_IF_ERROR(CheckRanges(options));
  options.limits.max_connections = static_cast<size_t>(options.max_connections);
  options.limits.max_connections_per_client =
      static_cast<size_t>(options.max_connections_per_client);
  options.limits.max_body_bytes = static_cast<size_t>(options.max_body_bytes);
  options.requests.max_choices = options.max_choices;
  options.requests.max_output_tokens = options.max_output_tokens;
  RETURN_IF_ERROR(ChooseToolFormat(options.parsers.tool_calls, "").status());
  RETURN_IF_ERROR(ChooseReasoningFormat(options.parsers.reasoning, "").status());
  ASSIGN_OR_RETURN(const HttpServer::Address address, HttpServer::Resolve(options.host));
  if (!address.loopback && options.api_key_file.empty() && !options.insecure) {
    return InvalidArgument(
        "host={}: other machines could use this server without a key; set api_key_file, or "
        "insecure=true to allow it",
        options.host);
  }
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    return InvalidArgument("tls_cert_file and tls_key_file go together");
  }
  const auto is_public = [page = options.page](std::string_view path) {
    return Routes::IsPublic(path) || (page && IsPage(path));
  };
  ASSIGN_OR_RETURN(Access access, Access::Create({.loopback = address.loopback,
                                                  .insecure = options.insecure,
                                                  .api_key_file = options.api_key_file,
                                                  .allowed_hosts = options.allowed_hosts,
                                                  .cors_origins = options.cors_origins,
                                                  .is_public = is_public}));
  ImageSources images;
  if (!options.image_root.empty()) {
    auto root = ImageRoot::Open(options.image_root);
    if (!root.ok()) return root.status().WithContext("image_root");
    images.root = *std::move(root);
  }
  if (options.allow_private_image_hosts && options.allow_image_hosts.empty()) {
    return InvalidArgument("allow_private_image_hosts needs allow_image_hosts");
  }
  auto hosts = AllowedHosts::Parse(options.allow_image_hosts, options.allow_private_image_hosts);
  if (!hosts.ok()) return hosts.status().WithContext("allow_image_hosts");
  std::unique_ptr<AccessLog> access_log;
  if (!options.access_log.empty()) {
    ASSIGN_OR_RETURN(access_log, AccessLog::Open(options.access_log));
  }
  auto impl =
      std::make_unique<Impl>(served, std::move(options), std::move(access), std::move(access_log));
  const ServerOptions& kept = impl->options;
  RETURN_IF_ERROR(impl->Listen(address.ip));
  if (!kept.allow_image_hosts.empty()) {
    WebClient::Options web{.hosts = *std::move(hosts)};
    if (const auto& info = served.loaded.model().images) {
      web.max_bytes = static_cast<size_t>(info->max_bytes);
    }
    ASSIGN_OR_RETURN(images.web, WebClient::Create(impl->http->io(), std::move(web)));
  }
  impl->routes = std::make_unique<Routes>(
      served, impl->access, impl->observer, impl->http->io(),
      Routes::Options{
          .page = kept.page,
          .preparing = kept.preparing,
          .openai = {.model_id = kept.model_id.empty() ? served.loaded.model().name : kept.model_id,
                     .parsers = kept.parsers,
                     .requests = kept.requests,
                     .images = std::move(images)},
          .version = kept.version});
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->http->port(); }

Status Server::Run() {
  impl_->http->Post([impl = impl_.get()] { impl->WatchEngine(); });
  impl_->http->Run();
  return impl_->loaded.health();
}

bool Server::busy() const { return impl_->routes->busy(); }

void Server::Shutdown() {
  impl_->http->Post([impl = impl_.get()] { impl->OnShutdown(); });
}

void Server::Reload() {
  impl_->http->Post([impl = impl_.get()] { impl->Reload(); });
}

}  // namespace tokamak
