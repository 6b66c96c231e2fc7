#include "server/transport/http_caller.h"

#include <fmt/core.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/error.h"

// g++ 12 destroys temporaries with non-trivial destructors twice if they live across a co_await (PR
// 99576 and others). So every operand below is a named variable or a trivial value.

namespace tokamak {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using boost::system::error_code;
using tcp = asio::ip::tcp;

using Microseconds = std::chrono::microseconds;
using TimePoint = std::chrono::steady_clock::time_point;

// Rounds up, so that a timer never fires early.
Microseconds ToMicroseconds(double seconds) {
  return Microseconds(static_cast<int64_t>(std::ceil(std::max(0.0, seconds) * 1e6)));
}

Status Failed(const char* what, const error_code& error) {
  if (error == beast::error::timeout) {
    return Status(StatusCode::kDeadlineExceeded, fmt::format("{}: it took too long", what));
  }
  const bool of_http =
      error.category() == http::make_error_code(http::error::bad_version).category();
  const bool ended = error == http::error::end_of_stream || error == http::error::partial_message;
  if (of_http && !ended) return DataLoss("{}: no HTTP: {}", what, error.message());
  return Unavailable("{}: {}", what, error.message());
}

}  // namespace

// A connection, plain or through TLS.
class HttpCaller::Wire {
 public:
  using Plain = beast::tcp_stream;
  using Tls = ssl::stream<beast::tcp_stream>;

  // `context` is null without TLS.
  Wire(asio::io_context& io, ssl::context* context) : plain_(io) {
    if (context != nullptr) tls_.emplace(std::move(plain_), *context);
  }

  Plain& plain() { return tls_ ? tls_->next_layer() : plain_; }
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }
  // Returns false if this side knows that the server has ended the connection.
  bool alive() {
    char byte = 0;
    const ssize_t got = ::recv(plain().socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    // With TLS there may be unread session tickets.
    return got < 0 ? errno == EAGAIN || errno == EWOULDBLOCK : got > 0 && tls_;
  }

  beast::flat_buffer buffer;  // read but not parsed yet
  bool answering = false;     // the response has begun to arrive
  bool reusable = false;      // the response is complete and the connection stays open

 private:
  Plain plain_;
  std::optional<Tls> tls_;
};

struct HttpCaller::Impl {
  asio::awaitable<void> Exchange(HttpCall call, std::shared_ptr<HttpReceiver> receiver);
  asio::awaitable<Status> Transfer(const HttpCall& call, HttpReceiver& receiver);
  asio::awaitable<Status> Open(Wire& wire, TimePoint deadline);
  template <typename Stream>
  asio::awaitable<Status> Converse(Stream& stream, Wire& wire, const HttpCall& call,
                                   HttpReceiver& receiver, TimePoint deadline);
  Status PrepareTls();
  std::unique_ptr<Wire> TakeIdle();

  // When to give up waiting for the next byte.
  TimePoint Patience(TimePoint deadline) const {
    return std::min(std::chrono::steady_clock::now() + timeout, deadline);
  }

  Url url;
  Options options;
  Microseconds timeout;
  asio::io_context io{1};
  std::optional<ssl::context> context;  // set for https
  tcp::resolver::results_type endpoints;
  std::vector<std::unique_ptr<Wire>> idle;  // in the order of their last use
};

Status HttpCaller::Impl::PrepareTls() {
  try {
    context.emplace(ssl::context::tls_client);
  } catch (const boost::system::system_error& error) {
    return Internal("TLS: {}", error.what());
  }
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  error_code error;
  context->set_verify_mode(options.insecure ? ssl::verify_none : ssl::verify_peer, error);
  if (options.ca_file.empty()) {
    context->set_default_verify_paths(error);
    return Status();  // without any, no certificate will be accepted
  }
  context->load_verify_file(options.ca_file, error);
  if (error) {
    return InvalidArgument("--ca {}: holds no certificates in PEM form: {}", options.ca_file,
                           error.message());
  }
  return Status();
}

std::unique_ptr<HttpCaller::Wire> HttpCaller::Impl::TakeIdle() {
  while (!idle.empty()) {
    std::unique_ptr<Wire> wire = std::move(idle.back());
    idle.pop_back();
    if (wire->alive()) return wire;
  }
  return nullptr;
}

asio::awaitable<void> HttpCaller::Impl::Exchange(HttpCall call,
                                                 std::shared_ptr<HttpReceiver> receiver) {
  const Status status = co_await Transfer(call, *receiver);
  receiver->OnEnd(status);
}

asio::awaitable<Status> HttpCaller::Impl::Transfer(const HttpCall& call, HttpReceiver& receiver) {
  const TimePoint deadline =
      call.limit_seconds > 0 ? std::chrono::steady_clock::now() + ToMicroseconds(call.limit_seconds)
                             : TimePoint::max();
  std::unique_ptr<Wire> wire = TakeIdle();
  const bool kept = wire != nullptr;
  for (bool first = true;; first = false) {
    if (wire == nullptr) {
      wire = std::make_unique<Wire>(io, context ? &*context : nullptr);
      const Status opened = co_await Open(*wire, deadline);
      if (!opened.ok()) co_return opened;
    }
    wire->answering = wire->reusable = false;
    Status status;
    if (wire->tls() != nullptr) {
      status = co_await Converse(*wire->tls(), *wire, call, receiver, deadline);
    } else {
      status = co_await Converse(wire->plain(), *wire, call, receiver, deadline);
    }
    // A server may end an idle connection at any time, even while the next request is on its way.
    // It has then not seen that request.
    const bool ended =
        kept && first && !wire->answering && status.code() == StatusCode::kUnavailable;
    if (wire->reusable) {
      wire->plain().expires_never();
      idle.push_back(std::move(wire));
    }
    wire = nullptr;
    if (!ended) co_return status;
  }
}

asio::awaitable<Status> HttpCaller::Impl::Open(Wire& wire, TimePoint deadline) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  wire.plain().expires_at(Patience(deadline));
  co_await wire.plain().async_connect(endpoints, token);
  if (error) co_return Failed("connecting", error);
  // Chunks of a body are small, and somebody waits for each.
  error_code ignored;
  wire.plain().socket().set_option(tcp::no_delay(true), ignored);
  Wire::Tls* const tls = wire.tls();
  if (tls == nullptr) co_return Status();
  asio::ip::make_address(url.host, ignored);
  X509_VERIFY_PARAM* const verified = SSL_get0_param(tls->native_handle());
  if (ignored) {  // a name, not an address
    SSL_set_tlsext_host_name(tls->native_handle(), url.host.c_str());
    X509_VERIFY_PARAM_set1_host(verified, url.host.c_str(), 0);
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(verified, url.host.c_str());
  }
  co_await tls->async_handshake(ssl::stream_base::client, token);
  if (!error) co_return Status();
  const long verdict = SSL_get_verify_result(tls->native_handle());
  if (verdict == X509_V_OK || options.insecure) co_return Failed("TLS", error);
  co_return Unavailable(
      "the server's certificate is not trusted: {} (--ca FILE names one to trust, --insecure "
      "trusts "
      "any)",
      X509_verify_cert_error_string(verdict));
}

template <typename Stream>
asio::awaitable<Status> HttpCaller::Impl::Converse(Stream& stream, Wire& wire, const HttpCall& call,
                                                   HttpReceiver& receiver, TimePoint deadline) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  const http::verb verb = call.body.empty() ? http::verb::get : http::verb::post;
  http::request<http::string_body> request(verb, url.path + call.target, 11);
  const bool v6 = url.host.find(':') != std::string::npos;
  request.set(http::field::host, (v6 ? "[" + url.host + "]" : url.host) + ":" + url.port);
  if (!call.body.empty()) request.set(http::field::content_type, "application/json");
  if (!options.keep_alive) request.set(http::field::connection, "close");
  for (const auto& [name, value] : call.headers) request.set(name, value);
  request.body() = call.body;
  request.prepare_payload();
  wire.plain().expires_at(Patience(deadline));
  co_await http::async_write(stream, request, token);
  if (error) co_return Failed("sending", error);
  receiver.OnSent();

  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);  // pieces are passed on as they come
  wire.plain().expires_at(Patience(deadline));
  co_await http::async_read_header(stream, wire.buffer, parser, token);
  wire.answering = wire.buffer.size() > 0 || parser.got_some();
  if (error) co_return Failed("waiting for an answer", error);
  receiver.OnHead(static_cast<int>(parser.get().result_int()));
  while (true) {
    std::string& body = parser.get().body();
    if (!body.empty()) {
      const Status status = receiver.OnBody(body);
      body.clear();
      if (!status.ok()) co_return status;
    }
    if (parser.is_done()) break;
    wire.plain().expires_at(Patience(deadline));
    co_await http::async_read_some(stream, wire.buffer, parser, token);
    if (error) co_return Failed("reading the answer", error);
  }
  wire.reusable = options.keep_alive && parser.keep_alive() && wire.buffer.size() == 0;
  co_return Status();
}

HttpCaller::HttpCaller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpCaller::~HttpCaller() = default;

Result<std::unique_ptr<HttpCaller>> HttpCaller::Create(const Url& url, const Options& options) {
  auto impl = std::make_unique<Impl>();
  impl->url = url;
  impl->options = options;
  impl->timeout = ToMicroseconds(options.timeout_seconds);
  if (url.tls) RETURN_IF_ERROR(impl->PrepareTls());
  tcp::resolver resolver(impl->io);
  error_code error;
  impl->endpoints = resolver.resolve(url.host, url.port, error);
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

Result<Url> ParseUrl(std::string_view text) {
  constexpr std::string_view kPlain = "http://", kTls = "https://";
  Url url;
  url.tls = text.starts_with(kTls);
  const bool known = url.tls || text.starts_with(kPlain);
  std::string_view rest = text;
  if (known) rest.remove_prefix(url.tls ? kTls.size() : kPlain.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  std::string_view host = rest.substr(0, slash);
  // The port follows the last colon outside of brackets, as in "[::1]:8080".
  const size_t colon =
      host.find(':', host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0);
  url.port = url.tls ? "443" : "80";
  if (colon != std::string_view::npos) {
    url.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  url.host = host;
  const bool digits = !url.port.empty() && url.port.size() <= 5 &&
                      url.port.find_first_not_of("0123456789") == std::string::npos;
  if (!known || url.host.empty() || url.host.find_first_of("[]") != std::string::npos || !digits ||
      std::stoi(url.port) > 65535 || text.find_first_of(" \r\n\t?#") != std::string_view::npos) {
    return InvalidArgument("--url: \"{}\" is not an address such as http://127.0.0.1:8080", text);
  }
  return url;
}

}  // namespace tokamak
