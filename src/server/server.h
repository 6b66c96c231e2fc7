// The HTTP server around an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/low_priority_pool.h"
#include "server/openai/prepare.h"
#include "server/openai/request_limits.h"
#include "server/transport/http.h"
#include "tokamak/server.h"

namespace tokamak {

// The options of an embedding program, and those that only `serve` and the tests set.
struct ServerOptions : EmbeddedServerOptions {
  // SIGINT and SIGTERM do what Shutdown does. SIGHUP reads keys and certificate again. Without such
  // files it does what Shutdown does if a terminal hangs up.
  bool handle_signals = true;
  std::string version = {};  // of this program, for /metrics and /debug/state
  // The limits that EmbeddedServerOptions has too are taken from there.
  HttpLimits limits = {};
  RequestLimits requests = {};
  AnswerParsers parsers = {};              // how tool calls and reasoning are found in text
  LowPriorityPool::Limits preparing = {};  // parsing and tokenizing requests
};

// kInvalidArgument for numbers out of range.
Status CheckRanges(const ServerOptions& options);
// Returns how many sockets may be open at a time, besides those of connections being refused.
size_t MaxOpenSockets(const ServerOptions& options);

// Owned by the thread that calls Run. It becomes the I/O thread.
class Server {
 public:
  // Binds the address. Without a key, an address that other machines can reach is refused, unless
  // `insecure`. The model outlives the server.
  static Result<std::unique_ptr<Server>> Create(ServedModel served, ServerOptions options);
  ~Server();

  uint16_t port() const;
  // Serves until Shutdown or, with handle_signals, SIGINT or SIGTERM. Running requests may then
  // finish for drain_seconds, or until a second signal. Returns OK at most ten seconds later, even
  // if a thread is stuck; a third signal ends it at once. If the engine fails, returns the engine's
  // error within a few seconds: by then every request has a response, and /health has been 503.
  Status Run();
  // Returns whether a thread still prepares a request or writes a long response. The destructor
  // would wait for it. Must be called after Run.
  bool busy() const;
  // Does what SIGTERM does. Thread-safe.
  void Shutdown();
  // Does what SIGHUP does. Thread-safe.
  void Reload();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak
