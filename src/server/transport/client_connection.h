// A client's side of HTTP: one connection, plain or through TLS. For this folder only.
#pragma once

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/transport/http_receiver.h"
#include "tokamak/status.h"

namespace tokamak {

// Which servers a client trusts.
struct ClientTls {
  std::unique_ptr<boost::asio::ssl::context> context;
  bool insecure = false;    // any certificate
  std::string advice = {};  // follows the message about a certificate that is not trusted
};
// kInvalidArgument if `ca_file` (PEM; empty: the system's certificates) holds no certificates.
Result<ClientTls> MakeClientTls(const std::string& ca_file, bool insecure);

// When a client gives up.
struct ClientDeadline {
  using Clock = std::chrono::steady_clock;

  std::chrono::microseconds patience;                  // for the next bytes
  Clock::time_point whole = Clock::time_point::max();  // for everything

  Clock::time_point next() const { return std::min(Clock::now() + patience, whole); }
};

// Rounds up, so that a timer never fires early.
std::chrono::microseconds ToMicroseconds(double seconds);

class ClientConnection {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  using Request = boost::beast::http::request<boost::beast::http::string_body>;

  // `tls` is null for plain HTTP, and otherwise outlives the connection.
  ClientConnection(boost::asio::io_context& io, const ClientTls* tls);

  // Connects to the first of `endpoints` that takes it. With TLS, the server's certificate must be
  // for `host`, a name or an address.
  boost::asio::awaitable<Status> Open(const std::vector<Endpoint>& endpoints,
                                      const std::string& host, ClientDeadline deadline);
  // Sends a request and passes its response on; not OnEnd.
  boost::asio::awaitable<Status> Exchange(const Request& request, HttpReceiver& receiver,
                                          ClientDeadline deadline);
  void Close();

  // Whether the last response had begun to arrive.
  bool answering() const { return answering_; }
  // Whether the last response is complete and the connection stays open.
  bool reusable() const { return reusable_; }
  // Waits without a deadline from now on.
  void Rest() { plain().expires_never(); }
  // Returns false if this side knows that the server has ended the connection.
  bool alive();

 private:
  using Plain = boost::beast::tcp_stream;
  using TlsStream = boost::asio::ssl::stream<boost::beast::tcp_stream>;

  Plain& plain() { return stream_ ? stream_->next_layer() : plain_; }
  template <typename Stream>
  boost::asio::awaitable<Status> Converse(Stream& stream, const Request& request,
                                          HttpReceiver& receiver, ClientDeadline deadline);

  const ClientTls* const tls_;
  Plain plain_;
  std::optional<TlsStream> stream_;
  boost::beast::flat_buffer buffer_;  // read but not parsed yet
  bool answering_ = false;
  bool reusable_ = false;
};

}  // namespace tokamak
