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

// Answers a request: returns when the answer is complete, or soon after the client has left.
using HttpHandler = std::function<Awaitable<void>(ResponseWriter&)>;

// Owned by the thread that calls Run, which does all the work; other threads may call Post.
class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // an address, "localhost", or a name of this machine
    uint16_t port = 8080;            // 0: any free one
    std::string tls_cert_file = {};  // PEM; empty: no TLS
    std::string tls_key_file = {};
    HttpLimits limits;
    // The answer to what HTTP itself finds wrong (malformed, too large, too slow, too many). Of the
    // request it has what could be read: at times nothing, or the method and the path alone.
    std::function<HttpResponse(const HttpRequest&, int status, const std::string& message)>
        error_response;
    // Called when a request's head is there and before its body is read; an answer means that
    // nobody else sees the request. May be null.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> check_head = {};
    // Adds what every answer carries, streams and errors included. May be null.
    std::function<void(const HttpRequest&, HttpResponse&)> decorate = {};
  };
  // Binds and listens; with TLS, reads its files.
  static Result<std::unique_ptr<HttpServer>> Listen(Options options, HttpHandler handler);
  ~HttpServer();

  uint16_t port() const;

  struct Address {
    std::string ip;         // to give to Listen
    bool loopback = false;  // only this machine can reach it
  };
  // What Listen would bind to.
  static Result<Address> Resolve(const std::string& host);

  // Serves until Stop, or until after Drain the last response is complete.
  void Run();
  // Accepts no more connections and closes those that wait for a request; Run returns when the
  // responses that are under way are complete. I/O thread.
  void Drain();
  // Closes everything; Run returns. I/O thread.
  void Stop();
  // Reads the certificate and its key again, for new connections. The files are also looked at
  // every two seconds. After an error, which is logged, the old ones stay in use. I/O thread.
  void ReloadTls();
  // Runs `work` on the I/O thread. From any thread.
  void Post(std::function<void()> work);
  // What Run runs.
  boost::asio::io_context& io();
  // Runs `work` on the I/O thread after `seconds`. I/O thread.
  void PostAfter(double seconds, std::function<void()> work);
  // Calls `on_signal` on the I/O thread for every SIGINT and SIGTERM, which no longer end the
  // process while this server lives.
  void OnSignals(std::function<void()> on_signal);
  // The same for SIGHUP.
  void OnHangup(std::function<void()> on_hangup);

  struct Impl;  // for http_server.cc alone

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
