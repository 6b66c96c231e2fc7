#include "server/transport/client_connection.h"

#include <fmt/core.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <cmath>

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

std::chrono::microseconds ToMicroseconds(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(std::ceil(std::max(0.0, seconds) * 1e6)));
}

Result<ClientTls> MakeClientTls(const std::string& ca_file, bool insecure) {
  ClientTls tls{.context = nullptr, .insecure = insecure};
  try {
    tls.context = std::make_unique<ssl::context>(ssl::context::tls_client);
  } catch (const boost::system::system_error& error) {
    return Internal("TLS: {}", error.what());
  }
  SSL_CTX_set_min_proto_version(tls.context->native_handle(), TLS1_2_VERSION);
  error_code error;
  tls.context->set_verify_mode(insecure ? ssl::verify_none : ssl::verify_peer, error);
  if (ca_file.empty()) {
    tls.context->set_default_verify_paths(error);
    return tls;  // without any, no certificate will be accepted
  }
  tls.context->load_verify_file(ca_file, error);
  if (error) {
    return InvalidArgument("--ca {}: holds no certificates in PEM form: {}", ca_file,
                           error.message());
  }
  return tls;
}

ClientConnection::ClientConnection(asio::io_context& io, const ClientTls* tls)
    : tls_(tls), plain_(io) {
  if (tls != nullptr) stream_.emplace(std::move(plain_), *tls->context);
}

bool ClientConnection::alive() {
  char byte = 0;
  const ssize_t got = ::recv(plain().socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  // With TLS there may be unread session tickets.
  return got < 0 ? errno == EAGAIN || errno == EWOULDBLOCK : got > 0 && stream_;
}

void ClientConnection::Close() { plain().close(); }

asio::awaitable<Status> ClientConnection::Open(const std::vector<Endpoint>& endpoints,
                                               const std::string& host, ClientDeadline deadline) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  plain().expires_at(deadline.next());
  co_await plain().async_connect(endpoints, token);
  if (error) co_return Failed("connecting", error);
  // Chunks of a body are small, and somebody waits for each.
  error_code ignored;
  plain().socket().set_option(tcp::no_delay(true), ignored);
  if (!stream_) co_return Status();
  asio::ip::make_address(host, ignored);
  X509_VERIFY_PARAM* const verified = SSL_get0_param(stream_->native_handle());
  if (ignored) {  // a name, not an address
    SSL_set_tlsext_host_name(stream_->native_handle(), host.c_str());
    X509_VERIFY_PARAM_set1_host(verified, host.c_str(), 0);
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(verified, host.c_str());
  }
  co_await stream_->async_handshake(ssl::stream_base::client, token);
  if (!error) co_return Status();
  const long verdict = SSL_get_verify_result(stream_->native_handle());
  if (verdict == X509_V_OK || tls_->insecure) co_return Failed("TLS", error);
  co_return Unavailable("the server's certificate is not trusted: {}{}",
                        X509_verify_cert_error_string(verdict), tls_->advice);
}

asio::awaitable<Status> ClientConnection::Exchange(const Request& request, HttpReceiver& receiver,
                                                   ClientDeadline deadline) {
  answering_ = reusable_ = false;
  Status status;
  if (stream_) {
    status = co_await Converse(*stream_, request, receiver, deadline);
  } else {
    status = co_await Converse(plain_, request, receiver, deadline);
  }
  co_return status;
}

template <typename Stream>
asio::awaitable<Status> ClientConnection::Converse(Stream& stream, const Request& request,
                                                   HttpReceiver& receiver,
                                                   ClientDeadline deadline) {
  error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  plain().expires_at(deadline.next());
  co_await http::async_write(stream, request, token);
  if (error) co_return Failed("sending", error);
  receiver.OnSent();

  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);  // pieces are passed on as they come
  plain().expires_at(deadline.next());
  co_await http::async_read_header(stream, buffer_, parser, token);
  answering_ = buffer_.size() > 0 || parser.got_some();
  if (error) co_return Failed("waiting for an answer", error);
  ReceivedHead head;
  head.status = static_cast<int>(parser.get().result_int());
  const auto location = parser.get()[http::field::location];
  head.location = {location.data(), location.size()};
  if (const auto length = parser.content_length()) head.body_bytes = *length;
  Status taken = receiver.OnHead(head);
  while (taken.ok()) {
    std::string& body = parser.get().body();
    if (!body.empty()) {
      taken = receiver.OnBody(body);
      body.clear();
      if (!taken.ok()) break;
    }
    if (parser.is_done()) break;
    plain().expires_at(deadline.next());
    co_await http::async_read_some(stream, buffer_, parser, token);
    if (error) co_return Failed("reading the answer", error);
  }
  reusable_ = taken.ok() && parser.keep_alive() && buffer_.size() == 0;
  co_return taken;
}

}  // namespace tokamak
