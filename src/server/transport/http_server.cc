#include "server/transport/http_server.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
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
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <deque>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/log.h"

// g++ 12 destroys temporaries with non-trivial destructors twice when they live across a co_await
// (PR 99576 and others): every operand below is a named variable or a trivial value.

namespace tokamak {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

std::string Head(const HttpResponse& response, bool keep_alive, bool chunked) {
  const auto status = static_cast<http::status>(response.status);
  const beast::string_view reason = http::obsolete_reason(status);
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status,
                  std::string_view(reason.data(), reason.size()), response.content_type);
  if (chunked) {
    head += "Transfer-Encoding: chunked\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  } else {
    head += fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

std::string Chunk(std::string_view data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

class Connection;

}  // namespace

// Everything is used on the I/O thread alone, except `io` itself and what never changes after
// Listen.
struct HttpServer::Impl {
  Impl(Options o, HttpHandler h)
      : options(std::move(o)),
        handler(std::move(h)),
        io(std::make_shared<asio::io_context>(1)),
        acceptor(*io),
        signals(*io) {}

  Status Listen();
  asio::awaitable<void> AcceptLoop();
  void NextSignal();
  void Closed(Connection* connection);
  void StopIfDrained();

  Options options;
  HttpHandler handler;
  std::shared_ptr<asio::io_context> io;  // outlives us in exchanges that others still hold
  tcp::acceptor acceptor;
  uint16_t port = 0;  // since Listen
  asio::signal_set signals;
  std::function<void()> on_signal;
  std::set<Connection*> connections;
  bool draining = false;
};

namespace {

// An exchange and the bytes of its response that have not gone out yet.
class BeastExchange final : public HttpExchange {
 public:
  BeastExchange(std::shared_ptr<asio::io_context> io, HttpRequest request, bool keep_alive,
                bool chunked_allowed, size_t max_unsent)
      : io_(std::move(io)),
        wake_(*io_),
        request_(std::move(request)),
        keep_alive_(keep_alive),
        chunked_allowed_(chunked_allowed),
        max_unsent_(max_unsent) {
    wake_.expires_at(asio::steady_timer::time_point::max());
  }

  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override { return std::exchange(request_.body, std::string()); }

  void Respond(HttpResponse response) override {
    if (gone_ || started_) return;
    started_ = finished_ = true;
    unsent_ = Head(response, keep_alive_, false);
    if (request_.method != "HEAD") unsent_ += response.body;
    wake_.cancel();
  }

  void StartStream(std::string_view content_type) override {
    if (gone_ || started_) return;
    started_ = true;
    if (!chunked_allowed_) keep_alive_ = false;  // HTTP/1.0: the end of the connection ends it
    HttpResponse response;
    response.content_type = content_type;
    unsent_ = Head(response, keep_alive_, true);
    if (!chunked_allowed_) {
      const std::string field = "Transfer-Encoding: chunked\r\n";
      unsent_.erase(unsent_.find(field), field.size());
    }
    wake_.cancel();
  }

  void Write(std::string data) override {
    if (gone_ || !started_ || finished_ || data.empty()) return;
    unsent_ += chunked_allowed_ ? Chunk(data) : data;
    if (unsent_.size() > max_unsent_) {
      overflow_ = true;
      Gone();
    }
    wake_.cancel();
  }

  void Finish() override {
    if (gone_ || !started_ || finished_) return;
    finished_ = true;
    if (chunked_allowed_) unsent_ += "0\r\n\r\n";
    wake_.cancel();
  }

  void OnClientGone(std::function<void()> on_gone) override {
    if (gone_) return on_gone();
    on_gone_ = std::move(on_gone);
  }

  void Post(std::function<void()> work) override { asio::post(*io_, std::move(work)); }

  // The rest is for the connection.
  void Gone() {
    if (gone_ || complete_) return;
    gone_ = true;
    wake_.cancel();
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }
  // All bytes of the response are with the kernel: the client can no longer leave it early.
  void Complete() {
    complete_ = true;
    on_gone_ = nullptr;
  }
  bool gone() const { return gone_; }
  bool overflow() const { return overflow_; }
  bool finished() const { return finished_; }
  bool keep_alive() const { return keep_alive_; }
  std::string TakeUnsent() { return std::exchange(unsent_, std::string()); }
  bool has_unsent() const { return !unsent_.empty(); }
  asio::steady_timer& wake() { return wake_; }

 private:
  std::shared_ptr<asio::io_context> io_;
  asio::steady_timer wake_;  // never expires; cancelled when there is something to do
  HttpRequest request_;
  bool keep_alive_;
  const bool chunked_allowed_;
  const size_t max_unsent_;
  std::string unsent_;
  bool started_ = false;
  bool finished_ = false;
  bool complete_ = false;
  bool gone_ = false;
  bool overflow_ = false;
  std::function<void()> on_gone_;
};

// One client: requests one after the other. While a response is under way it also watches for the
// client to close.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer::Impl& server, tcp::socket socket)
      : server_(server),
        limits_(server.options.limits),
        stream_(std::move(socket)),
        read_timer_(*server.io) {}

  asio::awaitable<void> Serve();
  asio::awaitable<void> Refuse();
  void CloseIfIdle() {
    if (exchange_ == nullptr && !reading_) Close();
  }
  void Close() {
    error_code ignored;
    stream_.socket().close(ignored);
    stream_.cancel();
    if (exchange_ != nullptr) exchange_->Gone();
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<bool> ReadRequest(Parser& parser);
  void StartReadTimer(double seconds);
  void StopReadTimer();
  asio::awaitable<bool> SendResponse();
  asio::awaitable<bool> WriteAll(const std::string& data);
  asio::awaitable<void> Fail(int status, const std::string& message);
  void StartExchange(Parser& parser);
  void WatchForClose();
  void OnReadable();

  HttpServer::Impl& server_;
  const HttpLimits& limits_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::shared_ptr<BeastExchange> exchange_;  // the response under way
  bool reading_ = false;                     // a request has begun to arrive
  bool watching_ = false;                    // an async_wait of WatchForClose is pending
  asio::steady_timer read_timer_;            // for the headers or the body that are arriving
  uint64_t reads_timed_ = 0;                 // tells a timer's late call from one in time
  bool too_slow_ = false;                    // the timer has cut off the read under way
};

asio::awaitable<void> Connection::Serve() {
  for (;;) {
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(limits_.max_header_bytes));
    parser.body_limit(limits_.max_body_bytes);
    const bool have_request = co_await ReadRequest(parser);
    reading_ = false;
    if (!have_request) break;
    StartExchange(parser);
    const bool sent = co_await SendResponse();
    const bool go_on = sent && exchange_->keep_alive() && !server_.draining;
    exchange_ = nullptr;
    if (!go_on) break;
  }
  error_code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  Close();
  server_.Closed(this);
}

asio::awaitable<void> Connection::Refuse() {
  const std::string message = "too many connections; try again later";
  co_await Fail(503, message);
  Close();
  server_.Closed(this);
}

// False when there is no request to answer; what is wrong has been told to the client then.
asio::awaitable<bool> Connection::ReadRequest(Parser& parser) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  if (buffer_.size() == 0) {  // wait for the first byte without counting it as slow
    stream_.expires_after(Milliseconds(limits_.idle_seconds));
    const auto space = buffer_.prepare(4096);
    const size_t got = co_await stream_.async_read_some(space, token);
    if (error) co_return false;
    buffer_.commit(got);
  }
  reading_ = true;
  StartReadTimer(limits_.header_seconds);
  co_await http::async_read_header(stream_, buffer_, parser, token);
  StopReadTimer();
  std::string message;
  if (!error) {
    const auto expect = parser.get()[http::field::expect];
    if (beast::iequals(expect, "100-continue")) {
      const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      const bool written = co_await WriteAll(go_on);
      if (!written) co_return false;
    }
    StartReadTimer(limits_.body_seconds);
    co_await http::async_read(stream_, buffer_, parser, token);
    StopReadTimer();
  }
  if (!error) co_return true;
  int code = 400;
  if (too_slow_ && stream_.socket().is_open()) {
    code = 408;
    message = parser.is_header_done()
                  ? fmt::format("the body did not arrive within {} s", limits_.body_seconds)
                  : fmt::format("the headers did not arrive within {} s", limits_.header_seconds);
  } else if (error == http::error::end_of_stream || error == http::error::partial_message) {
    co_return false;
  } else if (error == http::error::body_limit) {
    code = 413;
    message = "the body is larger than this server accepts (--max-body-bytes)";
  } else if (error == http::error::header_limit) {
    code = 431;
    message = "the headers are larger than this server accepts";
  } else if (error.category() == http::make_error_code(http::error::bad_method).category()) {
    message = "malformed HTTP request";
  } else {
    co_return false;  // the connection broke
  }
  co_await Fail(code, message);
  co_return false;
}

// Cuts a read off when it takes longer. The stream's own timeout would close the socket, which then
// cannot say why; it comes a moment later, in case the timer goes off while no read is pending.
void Connection::StartReadTimer(double seconds) {
  too_slow_ = false;
  stream_.expires_after(Milliseconds(seconds + 1));
  read_timer_.expires_after(Milliseconds(seconds));
  read_timer_.async_wait([self = shared_from_this(), read = ++reads_timed_](error_code) {
    if (read != self->reads_timed_) return;
    self->too_slow_ = true;
    self->stream_.cancel();
  });
}

void Connection::StopReadTimer() {
  ++reads_timed_;
  read_timer_.cancel();
  stream_.expires_never();
}

void Connection::StartExchange(Parser& parser) {
  auto& message = parser.get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  request.path = std::string(target.substr(0, target.find_first_of("?#")));
  request.content_type = std::string(message[http::field::content_type]);
  request.authorization = std::string(message[http::field::authorization]);
  request.body = std::move(message.body());
  const bool keep_alive = message.keep_alive() && !server_.draining;
  exchange_ = std::make_shared<BeastExchange>(server_.io, std::move(request), keep_alive,
                                              message.version() >= 11, limits_.max_unsent_bytes);
  stream_.expires_never();
  WatchForClose();
  server_.handler(exchange_);
}

// Sends what the handler writes until it has finished. False when the connection is of no more use.
asio::awaitable<bool> Connection::SendResponse() {
  const std::shared_ptr<BeastExchange> exchange = exchange_;
  error_code ignored;
  auto token = asio::redirect_error(asio::use_awaitable, ignored);
  for (;;) {
    if (exchange->gone()) co_return false;
    if (exchange->has_unsent()) {
      const std::string data = exchange->TakeUnsent();
      const bool written = co_await WriteAll(data);
      if (!written) {
        exchange->Gone();
        co_return false;
      }
    } else if (exchange->finished()) {
      exchange->Complete();
      co_return true;
    } else {
      co_await exchange->wake().async_wait(token);
    }
  }
}

asio::awaitable<bool> Connection::WriteAll(const std::string& data) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  const auto view = asio::buffer(data);
  stream_.expires_after(Milliseconds(limits_.write_seconds));
  co_await asio::async_write(stream_, view, token);
  stream_.expires_never();
  co_return !error;
}

asio::awaitable<void> Connection::Fail(int status, const std::string& message) {
  HttpResponse response;
  response.status = status;
  response.body = server_.options.error_body(status, message);
  const std::string data = Head(response, false, false) + response.body;
  co_await WriteAll(data);
  // Let the client read the answer before a reset: take in what it is still sending, for a moment.
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  stream_.socket().shutdown(tcp::socket::shutdown_send, error);
  stream_.expires_after(std::chrono::seconds(2));
  for (size_t taken = 0; !error && taken < 2 * limits_.max_body_bytes;) {
    buffer_.clear();
    const auto space = buffer_.prepare(65536);
    taken += co_await stream_.async_read_some(space, token);
  }
}

// The kernel says when there is something to read, which is either the end of the connection or
// the next request's first bytes.
void Connection::WatchForClose() {
  if (watching_) return;
  watching_ = true;
  stream_.socket().async_wait(tcp::socket::wait_read,
                              [self = shared_from_this()](error_code error) {
                                self->watching_ = false;
                                if (!error) self->OnReadable();
                              });
}

void Connection::OnReadable() {
  if (exchange_ == nullptr) return;  // between requests: ReadRequest sees it
  char byte;
  const ssize_t got = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return;  // pipelined: from now on only failing writes tell of a close
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return WatchForClose();
  exchange_->Gone();
}

// The addresses of a host; never empty. "localhost" is this machine whatever its files or name
// servers say (RFC 6761, section 6.3).
Result<std::vector<asio::ip::address>> AddressesOf(const std::string& host) {
  if (host == "localhost") return std::vector<asio::ip::address>{asio::ip::address_v4::loopback()};
  asio::io_context io;
  tcp::resolver resolver(io);
  error_code error;
  std::vector<asio::ip::address> addresses;
  for (const auto& entry : resolver.resolve(host, "0", error)) {
    addresses.push_back(entry.endpoint().address());
  }
  if (addresses.empty()) {
    return InvalidArgument("--host {}: not an address of this machine ({})", host, error.message());
  }
  return addresses;
}

}  // namespace

Status HttpServer::Impl::Listen() {
  ASSIGN_OR_RETURN(const std::vector<asio::ip::address> addresses, AddressesOf(options.host));
  error_code error;
  const tcp::endpoint endpoint(addresses.front(), options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) port = acceptor.local_endpoint(error).port();
  if (error) {
    return Unavailable("cannot listen on {}:{}: {}; is another server running? Try --port",
                       options.host, options.port, error.message());
  }
  return Status();
}

asio::awaitable<void> HttpServer::Impl::AcceptLoop() {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  asio::steady_timer pause(*io);
  while (acceptor.is_open()) {
    tcp::socket socket = co_await acceptor.async_accept(token);
    if (error == asio::error::operation_aborted) break;
    if (error) {  // out of file descriptors, most likely: wait for some to come back
      LogWarning("accept: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(token);
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto connection = std::make_shared<Connection>(*this, std::move(socket));
    const bool full = connections.size() >= options.limits.max_connections;
    connections.insert(connection.get());
    auto serve = [connection, full]() -> asio::awaitable<void> {
      if (full) {
        co_await connection->Refuse();
      } else {
        co_await connection->Serve();
      }
    };
    asio::co_spawn(*io, std::move(serve), asio::detached);
  }
}

void HttpServer::Impl::Closed(Connection* connection) {
  connections.erase(connection);
  StopIfDrained();
}

void HttpServer::Impl::StopIfDrained() {
  if (draining && connections.empty()) io->stop();
}

void HttpServer::Impl::NextSignal() {
  signals.async_wait([this](error_code error, int) {
    if (error) return;
    on_signal();
    NextSignal();
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() {
  Stop();
  impl_->io->restart();
  impl_->io->poll();  // lets the connections' coroutines end
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(Options options, HttpHandler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  RETURN_IF_ERROR(impl->Listen());
  auto accept = [raw = impl.get()] { return raw->AcceptLoop(); };
  asio::co_spawn(*impl->io, std::move(accept), asio::detached);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port; }

Result<bool> HttpServer::IsLoopback(const std::string& host) {
  ASSIGN_OR_RETURN(const std::vector<asio::ip::address> addresses, AddressesOf(host));
  return std::all_of(addresses.begin(), addresses.end(),
                     [](const asio::ip::address& address) { return address.is_loopback(); });
}

void HttpServer::Run() { impl_->io->run(); }

void HttpServer::Drain() {
  impl_->draining = true;
  error_code ignored;
  impl_->acceptor.close(ignored);
  for (Connection* connection : impl_->connections) connection->CloseIfIdle();
  impl_->StopIfDrained();
}

void HttpServer::Stop() {
  error_code ignored;
  impl_->draining = true;
  impl_->acceptor.close(ignored);
  impl_->signals.cancel(ignored);
  const std::set<Connection*> connections = impl_->connections;
  for (Connection* connection : connections) connection->Close();
  impl_->io->stop();
}

void HttpServer::Post(std::function<void()> work) { asio::post(*impl_->io, std::move(work)); }

void HttpServer::PostAfter(double seconds, std::function<void()> work) {
  auto timer = std::make_shared<asio::steady_timer>(*impl_->io, Milliseconds(seconds));
  timer->async_wait([timer, work = std::move(work)](error_code error) {
    if (!error) work();
  });
}

void HttpServer::OnSignals(std::function<void()> on_signal) {
  impl_->on_signal = std::move(on_signal);
  error_code ignored;
  impl_->signals.add(SIGINT, ignored);
  impl_->signals.add(SIGTERM, ignored);
  impl_->NextSignal();
}

}  // namespace tokamak
