// The HTTP server around an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/low_priority_pool.h"
#include "server/openai/prepare.h"
#include "server/openai/request_limits.h"
#include "server/transport/http.h"
#include "tokamak/engine.h"

namespace tokamak {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;            // 0: any free one
  std::string api_key_file = {};   // empty: no key is asked for; read again at SIGHUP
  bool insecure = false;           // allow other machines without a key
  std::string tls_cert_file = {};  // PEM; empty: no TLS; read again when it changes and at SIGHUP
  std::string tls_key_file = {};
  std::vector<std::string> allowed_hosts = {};  // access.h
  std::vector<std::string> cors_origins = {};
  std::string model_id = {};  // what clients call the model; empty: the model's own name
  bool page = true;           // the web page at `/`
  double drain_seconds = 30;  // how long running requests may go on after a signal
  // SIGINT and SIGTERM do what Shutdown does. SIGHUP reads keys and certificate again; where there
  // are none and a terminal hangs up, it does what Shutdown does.
  bool handle_signals = true;
  std::string access_log = {};  // a file for one line per request, "-": stdout; empty: none
  std::string version = {};     // of the program, for those who ask
  HttpLimits limits = {};
  RequestLimits requests = {};
  AnswerParsers parsers = {};              // how tool calls and reasoning are read from answers
  LowPriorityPool::Limits preparing = {};  // parsing and tokenizing requests
};

// Owned by the thread that calls Run, which becomes the I/O thread.
class Server {
 public:
  // Binds. Refused: an address that other machines can reach without a key, unless `insecure`.
  // The engine outlives the server.
  static Result<std::unique_ptr<Server>> Create(Engine& engine, ServerOptions options);
  ~Server();

  uint16_t port() const;
  // Serves until Shutdown or, with handle_signals, SIGINT or SIGTERM; then lets running requests
  // finish for drain_seconds, or until a second signal, and returns OK within ten seconds of
  // that, whatever its threads are at; a third signal waits for nothing. When the engine fails it
  // returns the engine's error, within a few seconds: every request has an answer by then, and
  // /health has said 503.
  Status Run();
  // After Run: whether a thread still prepares a request or makes an answer's text. The destructor
  // would wait for it.
  bool busy() const;
  // Does what a signal does. From any thread.
  void Shutdown();
  // Does what SIGHUP does. From any thread.
  void Reload();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
