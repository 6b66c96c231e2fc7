#include "server/transport/http_caller.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "server/transport/client_connection.h"

// g++ 12 destroys temporaries with non-trivial destructors twice if they live across a co_await (PR
// 99576 and others). So every operand below is a named variable or a trivial value.

namespace tokamak {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

}  // namespace

struct HttpCaller::Impl {
  asio::awaitable<void> Exchange(HttpCall call, std::shared_ptr<HttpReceiver> receiver);
  asio::awaitable<Status> Transfer(const HttpCall& call, HttpReceiver& receiver);
  ClientConnection::Request RequestFor(const HttpCall& call) const;
  std::unique_ptr<ClientConnection> TakeIdle();

  Url url;
  Options options;
  asio::io_context io{1};
  std::optional<ClientTls> tls;  // set for https
  std::vector<ClientConnection::Endpoint> endpoints;
  std::vector<std::unique_ptr<ClientConnection>> idle;  // in the order of their last use
};

std::unique_ptr<ClientConnection> HttpCaller::Impl::TakeIdle() {
  while (!idle.empty()) {
    std::unique_ptr<ClientConnection> connection = std::move(idle.back());
    idle.pop_back();
    if (connection->alive()) return connection;
  }
  return nullptr;
}

ClientConnection::Request HttpCaller::Impl::RequestFor(const HttpCall& call) const {
  const http::verb verb = call.body.empty() ? http::verb::get : http::verb::post;
  ClientConnection::Request request(verb, url.target + call.target, 11);
  request.set(http::field::host, url.authority());
  if (!call.body.empty()) request.set(http::field::content_type, "application/json");
  if (!options.keep_alive) request.set(http::field::connection, "close");
  for (const auto& [name, value] : call.headers) request.set(name, value);
  request.body() = call.body;
  request.prepare_payload();
  return request;
}

asio::awaitable<void> HttpCaller::Impl::Exchange(HttpCall call,
                                                 std::shared_ptr<HttpReceiver> receiver) {
  const Status status = co_await Transfer(call, *receiver);
  receiver->OnEnd(status);
}

asio::awaitable<Status> HttpCaller::Impl::Transfer(const HttpCall& call, HttpReceiver& receiver) {
  ClientDeadline deadline{.patience = ToMicroseconds(options.timeout_seconds)};
  if (call.limit_seconds > 0) {
    deadline.whole = ClientDeadline::Clock::now() + ToMicroseconds(call.limit_seconds);
  }
  const ClientConnection::Request request = RequestFor(call);
  std::unique_ptr<ClientConnection> connection = TakeIdle();
  const bool kept = connection != nullptr;
  for (bool first = true;; first = false) {
    if (connection == nullptr) {
      connection = std::make_unique<ClientConnection>(io, tls ? &*tls : nullptr);
      const Status opened = co_await connection->Open(endpoints, url.host, deadline);
      if (!opened.ok()) co_return opened;
    }
    const Status status = co_await connection->Exchange(request, receiver, deadline);
    // A server may end an idle connection at any time, even while the next request is on its way.
    // It has then not seen that request.
    const bool ended =
        kept && first && !connection->answering() && status.code() == StatusCode::kUnavailable;
    if (connection->reusable() && options.keep_alive) {
      connection->Rest();
      idle.push_back(std::move(connection));
    }
    connection = nullptr;
    if (!ended) co_return status;
  }
}

HttpCaller::HttpCaller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpCaller::~HttpCaller() = default;

Result<std::unique_ptr<HttpCaller>> HttpCaller::Create(const Url& url, const Options& options) {
  if (url.target.find('?') != std::string::npos) {
    return InvalidArgument("--url: must have no query, got {}", url.ToString());
  }
  auto impl = std::make_unique<Impl>();
  impl->url = url;
  while (impl->url.target.ends_with('/')) impl->url.target.pop_back();
  impl->options = options;
  if (url.tls) {
    ASSIGN_OR_RETURN(impl->tls, MakeClientTls(options.ca_file, options.insecure));
    impl->tls->advice = " (--ca FILE names one to trust, --insecure trusts any)";
  }
  tcp::resolver resolver(impl->io);
  error_code error;
  for (const auto& entry : resolver.resolve(url.host, url.port, error)) {
    impl->endpoints.push_back(entry.endpoint());
  }
  if (error) return NotFound("--url: cannot find {}: {}", url.host, error.message());
  return std::unique_ptr<HttpCaller>(new HttpCaller(std::move(impl)));
}

void HttpCaller::Send(HttpCall call, std::shared_ptr<HttpReceiver> receiver) {
  asio::co_spawn(impl_->io, impl_->Exchange(std::move(call), std::move(receiver)), asio::detached);
}

void HttpCaller::After(double seconds, std::function<void()> call) {
  auto timer = std::make_shared<asio::steady_timer>(impl_->io, ToMicroseconds(seconds));
  timer->async_wait([timer, call = std::move(call)](error_code error) {
    if (!error) call();
  });
}

void HttpCaller::Run() { impl_->io.run(); }

void HttpCaller::Stop() { impl_->io.stop(); }

}  // namespace tokamak
