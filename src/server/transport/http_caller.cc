#include "server/transport/http_caller.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>

#include "base/error.h"

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

Status Failed(const char* what, const error_code& error) {
  return Unavailable("{}: {}", what, error.message());
}

}  // namespace

struct HttpCaller::Impl {
  asio::awaitable<void> Exchange(HttpCall call, std::shared_ptr<HttpReceiver> receiver);
  asio::awaitable<Status> Transfer(const HttpCall& call, HttpReceiver& receiver);

  Url url;
  std::chrono::milliseconds timeout;
  asio::io_context io{1};
  tcp::resolver::results_type endpoints;
};

asio::awaitable<void> HttpCaller::Impl::Exchange(HttpCall call,
                                                 std::shared_ptr<HttpReceiver> receiver) {
  const Status status = co_await Transfer(call, *receiver);
  receiver->OnEnd(status);
}

asio::awaitable<Status> HttpCaller::Impl::Transfer(const HttpCall& call, HttpReceiver& receiver) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  beast::tcp_stream stream(io);
  stream.expires_after(timeout);
  co_await stream.async_connect(endpoints, token);
  if (error) co_return Failed("connecting", error);
  // Chunks of a body are small and each is waited for.
  error_code ignored;
  stream.socket().set_option(tcp::no_delay(true), ignored);

  http::request<http::string_body> request(http::verb::post, url.path + call.target, 11);
  request.set(http::field::host, url.host + ":" + url.port);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : call.headers) request.set(name, value);
  request.body() = call.body;
  request.prepare_payload();
  co_await http::async_write(stream, request, token);
  if (error) co_return Failed("sending", error);

  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);  // pieces are handed on as they come
  stream.expires_after(timeout);
  co_await http::async_read_header(stream, buffer, parser, token);
  if (error) co_return Failed("waiting for an answer", error);
  receiver.OnHead(static_cast<int>(parser.get().result_int()));
  while (true) {
    std::string& body = parser.get().body();
    if (!body.empty()) {
      const Status status = receiver.OnBody(body);
      body.clear();
      if (!status.ok()) co_return status;
    }
    if (parser.is_done()) co_return Status();
    stream.expires_after(timeout);
    co_await http::async_read_some(stream, buffer, parser, token);
    if (error) co_return Failed("reading the answer", error);
  }
}

HttpCaller::HttpCaller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpCaller::~HttpCaller() = default;

Result<std::unique_ptr<HttpCaller>> HttpCaller::Create(const Url& url, double timeout_seconds) {
  auto impl = std::make_unique<Impl>();
  impl->url = url;
  impl->timeout = Milliseconds(timeout_seconds);
  tcp::resolver resolver(impl->io);
  error_code error;
  impl->endpoints = resolver.resolve(url.host, url.port, error);
  if (error) return NotFound("--url: cannot find {}: {}", url.host, error.message());
  return std::unique_ptr<HttpCaller>(new HttpCaller(std::move(impl)));
}

void HttpCaller::Post(HttpCall call, std::shared_ptr<HttpReceiver> receiver) {
  asio::co_spawn(impl_->io, impl_->Exchange(std::move(call), std::move(receiver)), asio::detached);
}

void HttpCaller::After(double seconds, std::function<void()> call) {
  auto timer = std::make_shared<asio::steady_timer>(impl_->io, Milliseconds(seconds));
  timer->async_wait([timer, call = std::move(call)](error_code error) {
    if (!error) call();
  });
}

void HttpCaller::Run() { impl_->io.run(); }

Result<Url> ParseUrl(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) {
    return Unimplemented("--url: https is not supported; name the server itself by http");
  }
  std::string_view rest = text;
  const size_t begin = rest.starts_with(kScheme) ? kScheme.size() : 0;
  rest.remove_prefix(begin);
  Url url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  std::string_view host = rest.substr(0, slash);
  // "[::1]:8080": the last colon outside of brackets.
  const size_t colon =
      host.find(':', host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0);
  url.port = "80";
  if (colon != std::string_view::npos) {
    url.port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  url.host = host;
  const bool digits = !url.port.empty() && url.port.size() <= 5 &&
                      url.port.find_first_not_of("0123456789") == std::string::npos;
  if (begin == 0 || url.host.empty() || url.host.find_first_of("[]") != std::string::npos ||
      !digits || std::stoi(url.port) > 65535 ||
      text.find_first_of(" \r\n\t?#") != std::string_view::npos) {
    return InvalidArgument("--url: \"{}\" is no address such as http://127.0.0.1:8080", text);
  }
  return url;
}

}  // namespace tokamak
