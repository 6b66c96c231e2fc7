// The HTTP server of `tokamak serve`, inside a program of yours.
//
//   auto server = tokamak::EmbeddedServer::Start(**engine, {.port = 8080});
//   if (!server.ok()) return Fail(server.status());
//   (*server)->Wait();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokamak/engine.h"

namespace tokamak {

// As the flags of `tokamak serve`; error messages call them by the names of those.
struct EmbeddedServerOptions {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  uint16_t port = 8080;            // 0: any free one, which port() tells
  std::string api_key_file = {};   // one key per line; empty: no key is asked for
  bool insecure = false;           // allow an address that other machines reach without a key
  std::string tls_cert_file = {};  // PEM, with its chain; empty: no TLS; read again when it changes
  std::string tls_key_file = {};   // PEM; given together with the certificate
  std::vector<std::string> allowed_hosts = {};  // names in Host headers that are ours
  // Pages of these origins ("https://example.org") may use the API; "*": all, and needs keys.
  std::vector<std::string> cors_origins = {};
  bool page = true;             // the web page at `/`
  std::string model_id = {};    // what clients call the model; empty: the model's own name
  std::string access_log = {};  // a file for one line of JSON per request, "-": stdout; empty: none
  double drain_seconds = 30;    // how long running requests may go on after Shutdown

  size_t max_connections = 4096;             // more get 503
  size_t max_connections_per_client = 2048;  // of one address; more get 429
  size_t max_body_bytes = 8 << 20;           // larger requests get 413
  int32_t max_choices = 128;                 // n times the number of prompts in a request
  int32_t max_output_tokens = 0;             // of each choice; 0: as many as the context holds
};

// Serves the OpenAI-compatible API over an engine, from a thread of its own. The program may use
// the engine beside it; requests of both share batches and the cache. Takes no signals: a program
// that wants SIGTERM to end the server calls Shutdown. Thread-safe, but for its destructor.
class EmbeddedServer {
 public:
  // Listens and begins to serve. The engine must outlive the server. kInvalidArgument for an
  // address that other machines can reach without api_key_file, unless `insecure`, and for limits
  // below 1; kNotFound or kInvalidArgument for files of keys or of TLS that cannot be used;
  // kUnavailable for an address that is taken.
  static Result<std::unique_ptr<EmbeddedServer>> Start(Engine& engine,
                                                       const EmbeddedServerOptions& options);
  // Ends at once: requests that run are cancelled. Waits a few seconds at most.
  virtual ~EmbeddedServer() = default;

  virtual uint16_t port() const = 0;
  // Begins to end: no more requests are taken, those that run may finish for drain_seconds. Called
  // a second time, it cancels them. It drains the engine (Engine::Drain), which takes no more
  // requests from then on, whoever makes them. Does not wait.
  virtual void Shutdown() = 0;
  // Reads the keys and the certificate again, for new requests and connections. Those that cannot
  // be used are logged, and the old ones stay. Does not wait.
  virtual void Reload() = 0;
  // Waits until the server has ended. OK after Shutdown; the engine's error when that has failed.
  virtual Status Wait() = 0;
};

}  // namespace tokamak
