// An HTTP/1.1 server on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/transport/http.h"
#include "server/transport/response_writer.h"
#include "tokamak/status.h"

namespace tokamak {

// Handles a request. Returns when the response is complete, or soon after the client has left.
using HttpHandler = std::function<Awaitable<void>(ResponseWriter&)>;

// Owned by the thread that calls Run, which does all the work. Other threads may only call Post.
class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // an address, "localhost", or a name of this machine
    uint16_t port = 8080;            // 0: any free one
    std::string tls_cert_file = {};  // PEM; empty: no TLS
    std::string tls_key_file = {};
    HttpLimits limits;
    // Makes the response to an error of HTTP itself (malformed, too large, too slow, too many). The
    // request holds what could be read: perhaps nothing, or only method and path.
    std::function<HttpResponse(const HttpRequest&, int status, const std::string& message)>
        error_response;
    // Called when a request's head has arrived, before its body is read. A response ends the
    // request: its body and the handler are skipped. May be null.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> check_head = {};
    // Adds headers to every response, streams and errors included. May be null.
    std::function<void(const HttpRequest&, HttpResponse&)> decorate = {};
  };
  // Binds and listens; with TLS, reads its files.
  static Result<std::unique_ptr<HttpServer>> Listen(Options options, HttpHandler handler);
  ~HttpServer();

  uint16_t port() const;

  struct Address {
    std::string ip;         // for Options::host
    bool loopback = false;  // only this machine can reach it
  };
  // Returns the address to which Listen would bind.
  static Result<Address> Resolve(const std::string& host);

  // Serves until Stop; after Drain, until the last response is complete.
  void Run();
  // Accepts no more connections and closes idle ones. Run returns when the running responses are
  // complete. I/O thread.
  void Drain();
  // Closes everything and ends Run. I/O thread.
  void Stop();
  // Reads the certificate and its key again, for new connections. The server also looks at the
  // files every two seconds. After an error, which is logged, the old ones stay in use. I/O thread.
  void ReloadTls();
  // Runs `work` on the I/O thread. Thread-safe.
  void Post(std::function<void()> work);
  // Returns the io_context of the I/O thread.
  boost::asio::io_context& io();
  // Runs `work` on the I/O thread after `seconds`. I/O thread.
  void PostAfter(double seconds, std::function<void()> work);
  // Calls `on_signal` on the I/O thread for every SIGINT and SIGTERM. They no longer end the
  // process while this server lives.
  void OnSignals(std::function<void()> on_signal);
  // Does the same for SIGHUP.
  void OnHangup(std::function<void()> on_hangup);

  struct Impl;  // used only in http_server.cc

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
