// An HTTP/1.1 server on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/transport/http.h"
#include "tokamak/status.h"

namespace tokamak {

struct HttpLimits {
  size_t max_connections = 1024;  // more get 503 and are closed
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 8 << 20;
  size_t max_unsent_bytes = 4 << 20;  // of a stream whose client does not read; then it is dropped
  double idle_seconds = 75;           // between requests on a connection
  double header_seconds = 10;         // for the request line and headers, once they have begun
  double body_seconds = 60;           // for the whole body
  double write_seconds = 30;          // for the client to take in what was written
};

// Owned by the thread that calls Run, which does all the work; other threads may call Post.
class HttpServer {
 public:
  // Binds and listens. `host` is an address or "localhost"; port 0 takes a free one. Errors from
  // HTTP itself (malformed, too large, too slow) are answered with `error_body(status, message)`.
  struct Options {
    std::string host = "127.0.0.1";
    uint16_t port = 8080;
    HttpLimits limits;
    std::function<std::string(int status, const std::string& message)> error_body;
  };
  static Result<std::unique_ptr<HttpServer>> Listen(Options options, HttpHandler handler);
  ~HttpServer();

  uint16_t port() const;
  // True for addresses that only this machine can reach.
  static Result<bool> IsLoopback(const std::string& host);

  // Serves until Stop, or until after Drain the last response is complete.
  void Run();
  // Accepts no more connections and closes those that wait for a request; Run returns when the
  // responses that are under way are complete. I/O thread.
  void Drain();
  // Closes everything; Run returns. I/O thread.
  void Stop();
  // Runs `work` on the I/O thread. From any thread.
  void Post(std::function<void()> work);
  // Runs `work` on the I/O thread after `seconds`. I/O thread.
  void PostAfter(double seconds, std::function<void()> work);
  // Calls `on_signal` on the I/O thread for every SIGINT and SIGTERM, which no longer end the
  // process while this server lives.
  void OnSignals(std::function<void()> on_signal);

  struct Impl;  // for http_server.cc alone

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
