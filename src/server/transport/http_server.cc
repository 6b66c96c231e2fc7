#include "server/transport/http_server.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "server/transport/client_network.h"
#include "server/transport/connection.h"
#include "server/transport/tls.h"

namespace tokamak {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr double kWatchSeconds = 2;           // between checks of the certificate's files
constexpr int kMaxUnsentInKernel = 32 << 10;  // per connection, without bytes in flight
constexpr size_t kMaxRefusals = 256;          // connections above the limit that get an error

asio::ip::address Unmapped(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

// Returns the addresses of a host, at least one. "localhost" is this machine whatever a name server
// says (RFC 6761, section 6.3).
Result<std::vector<asio::ip::address>> AddressesOf(const std::string& host) {
  if (host.empty()) {
    return InvalidArgument(
        "host: is empty; give an address or a name of this machine: 127.0.0.1 for its own "
        "programs alone, 0.0.0.0 or :: for all others too");
  }
  if (host == "localhost") return std::vector<asio::ip::address>{asio::ip::address_v4::loopback()};
  asio::io_context io;
  tcp::resolver resolver(io);
  error_code error;
  std::vector<asio::ip::address> addresses;
  for (const auto& entry : resolver.resolve(host, "0", error)) {
    addresses.push_back(entry.endpoint().address());
  }
  if (addresses.empty()) {
    return InvalidArgument("host={}: not an address of this machine ({})", host, error.message());
  }
  return addresses;
}

// Without this the system buffers megabytes of output for a client that does not read, and we would
// compute and format all of it. Bytes in flight do not count, so no connection gets slower.
void LimitUnsent(tcp::socket& socket) {
#ifdef TCP_NOTSENT_LOWAT
  const int bytes = kMaxUnsentInKernel;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
#else
  (void)socket;
#endif
}

void ReloadCertificate(TlsServer& tls) {
  if (const Status status = tls.Reload(); !status.ok()) {
    LogError("the old certificate stays in use: {}", status.message());
  } else {
    LogInfo("the certificate was read again");
  }
}

// An exception is a bug or means that memory has run out. The connection ends, and the server goes
// on.
void LogException(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    LogError("a connection was closed because of an exception: {}", exception.what());
  } catch (...) {
    LogError("a connection was closed because of an exception");
  }
}

}  // namespace

// Used only on the I/O thread, except `io` itself and what never changes after Listen.
struct HttpServer::Impl {
  Impl(Options options, HttpHandler handler)
      : host{.options = std::move(options),
             .handler = std::move(handler),
             .io = std::make_unique<asio::io_context>(1)},
        acceptor(*host.io),
        shutdown_signals(*host.io),
        hangup_signals(*host.io) {}

  Status Listen();
  asio::awaitable<void> AcceptLoop();
  void Accept(tcp::socket socket);
  void WatchTls();
  static void NextSignal(asio::signal_set& signals, const std::function<void()>& call);
  void Closed(Connection& connection, const std::string& client);
  void StopIfDrained();

  ConnectionHost host;
  tcp::acceptor acceptor;
  uint16_t port = 0;               // set by Listen
  std::unique_ptr<TlsServer> tls;  // null: no TLS
  asio::signal_set shutdown_signals, hangup_signals;
  std::function<void()> on_shutdown, on_hangup;
  std::set<Connection*> connections;
  std::map<std::string, size_t> per_client;  // number of connections per ClientNetwork
};

Status HttpServer::Impl::Listen() {
  const Options& options = host.options;
  if (!options.tls_cert_file.empty()) {
    ASSIGN_OR_RETURN(tls, TlsServer::Load(options.tls_cert_file, options.tls_key_file));
  }
  ASSIGN_OR_RETURN(const std::vector<asio::ip::address> addresses, AddressesOf(options.host));
  error_code error;
  const tcp::endpoint endpoint(addresses.front(), options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) port = acceptor.local_endpoint(error).port();
  if (error) {
    return Unavailable("cannot listen on {}:{}: {}; is another server running? Try another port",
                       options.host, options.port, error.message());
  }
  return Status();
}

asio::awaitable<void> HttpServer::Impl::AcceptLoop() {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  asio::steady_timer pause(*host.io);
  while (acceptor.is_open()) {
    tcp::socket socket = co_await acceptor.async_accept(token);
    if (error == asio::error::operation_aborted) break;
    if (error) {  // probably out of file descriptors: wait for free ones
      LogWarning("accept: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(token);
      continue;
    }
    Accept(std::move(socket));
  }
}

void HttpServer::Impl::Accept(tcp::socket socket) {
  const HttpLimits& limits = host.options.limits;
  error_code error;
  const asio::ip::address address = Unmapped(socket.remote_endpoint(error).address());
  if (error) return;  // the client has left already
  socket.set_option(tcp::no_delay(true), error);
  LimitUnsent(socket);
  int refusal = 0;
  std::string client = ClientNetwork(address.to_string());
  size_t& of_client = per_client[client];
  if (connections.size() >= limits.max_connections) {
    refusal = 503;
  } else if (of_client >= limits.max_connections_per_client) {
    refusal = 429;
  }
  if (refusal != 0 && connections.size() >= limits.max_connections + kMaxRefusals) {
    if (of_client == 0) per_client.erase(client);
    return;
  }
  ++of_client;
  auto stream = tls != nullptr ? tls->Wrap(std::move(socket)) : MakePlainStream(std::move(socket));
  auto connection = std::make_shared<Connection>(host, std::move(stream), client);
  connections.insert(connection.get());
  auto serve = [connection, refusal]() -> asio::awaitable<void> {
    if (refusal == 0) {
      co_await connection->Serve();
    } else {
      const std::string message = refusal == 429 ? "too many connections from this address"
                                                 : "too many connections; try again later";
      co_await connection->Refuse(refusal, message);
    }
  };
  auto closed = [this, connection, client](const std::exception_ptr& error) {
    if (error != nullptr) LogException(error);
    Closed(*connection, client);
  };
  asio::co_spawn(*host.io, std::move(serve), std::move(closed));
}

void HttpServer::Impl::Closed(Connection& connection, const std::string& client) {
  connection.Close();
  connections.erase(&connection);
  if (const auto found = per_client.find(client); --found->second == 0) per_client.erase(found);
  StopIfDrained();
}

void HttpServer::Impl::StopIfDrained() {
  if (host.draining && connections.empty()) host.io->stop();
}

void HttpServer::Impl::NextSignal(asio::signal_set& signals, const std::function<void()>& call) {
  signals.async_wait([&signals, &call](error_code error, int) {
    if (error) return;
    call();
    NextSignal(signals, call);
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  Stop();
  impl_->host.io->restart();
  impl_->host.io->poll();  // ends the connections' coroutines
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(Options options, HttpHandler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  RETURN_IF_ERROR(impl->Listen());
  auto accept = [raw = impl.get()] { return raw->AcceptLoop(); };
  asio::co_spawn(*impl->host.io, std::move(accept), asio::detached);
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(impl)));
  if (server->impl_->tls != nullptr) server->impl_->WatchTls();
  return server;
}

// The timer belongs to the server's io and ends with it.
void HttpServer::Impl::WatchTls() {
  auto timer = std::make_shared<asio::steady_timer>(*host.io, Milliseconds(kWatchSeconds));
  timer->async_wait([this, timer](error_code error) {
    if (error || host.draining) return;
    if (tls->FilesChanged()) ReloadCertificate(*tls);
    WatchTls();
  });
}

uint16_t HttpServer::port() const { return impl_->port; }

Result<HttpServer::Address> HttpServer::Resolve(const std::string& host) {
  ASSIGN_OR_RETURN(const std::vector<asio::ip::address> addresses, AddressesOf(host));
  const asio::ip::address& first = addresses.front();
  return Address{.ip = first.to_string(), .loopback = Unmapped(first).is_loopback()};
}

void HttpServer::Run() { impl_->host.io->run(); }

void HttpServer::Drain() {
  impl_->host.draining = true;
  error_code ignored;
  impl_->acceptor.close(ignored);
  for (Connection* connection : impl_->connections) connection->CloseIfIdle();
  impl_->StopIfDrained();
}

void HttpServer::Stop() {
  error_code ignored;
  impl_->host.draining = true;
  impl_->acceptor.close(ignored);
  impl_->shutdown_signals.cancel(ignored);
  impl_->hangup_signals.cancel(ignored);
  const std::set<Connection*> connections = impl_->connections;
  for (Connection* connection : connections) connection->Close();
  impl_->host.io->stop();
}

void HttpServer::ReloadTls() {
  if (impl_->tls != nullptr) ReloadCertificate(*impl_->tls);
}

void HttpServer::Post(std::function<void()> work) { asio::post(*impl_->host.io, std::move(work)); }

asio::io_context& HttpServer::io() { return *impl_->host.io; }

void HttpServer::PostAfter(double seconds, std::function<void()> work) {
  auto timer = std::make_shared<asio::steady_timer>(*impl_->host.io, Milliseconds(seconds));
  timer->async_wait([timer, work = std::move(work)](error_code error) {
    if (!error) work();
  });
}

void HttpServer::OnSignals(std::function<void()> on_signal) {
  impl_->on_shutdown = std::move(on_signal);
  error_code ignored;
  impl_->shutdown_signals.add(SIGINT, ignored);
  impl_->shutdown_signals.add(SIGTERM, ignored);
  Impl::NextSignal(impl_->shutdown_signals, impl_->on_shutdown);
}

void HttpServer::OnHangup(std::function<void()> on_hangup) {
  impl_->on_hangup = std::move(on_hangup);
  error_code ignored;
  impl_->hangup_signals.add(SIGHUP, ignored);
  Impl::NextSignal(impl_->hangup_signals, impl_->on_hangup);
}

}  // namespace tokamak
