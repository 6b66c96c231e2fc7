// The HTTP server of `tokamak serve`, for use inside another program.
//
//   auto server = tokamak::EmbeddedServer::Start(**engine, {.port = 8080});
//   if (!server.ok()) return Fail(server.status());
//   (*server)->Wait();
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokamak/embed.h"
#include "tokamak/engine.h"

namespace tokamak {

// The engine or the embedder behind a server.
struct ServedModel {
  ServedModel(Engine& e) : loaded(e), engine(&e) {}      // NOLINT(google-explicit-constructor)
  ServedModel(Embedder& e) : loaded(e), embedder(&e) {}  // NOLINT(google-explicit-constructor)

  LoadedModel& loaded;
  Engine* engine = nullptr;      // null: the model embeds
  Embedder* embedder = nullptr;  // null: the model generates
};

// The options of `tokamak serve`. Errors begin with the name of a field.
struct EmbeddedServerOptions {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  uint16_t port = 8080;            // 0: any free port; see port()
  std::string api_key_file = {};   // one key per line; empty: no authentication
  bool insecure = false;           // allow an address that other machines can reach without a key
  std::string tls_cert_file = {};  // PEM with its chain; reread when it changes; empty: no TLS
  std::string tls_key_file = {};   // PEM; required with a certificate
  std::vector<std::string> allowed_hosts = {};  // accepted names in Host headers
  // Web origins that may use the API ("https://example.org"); "*": all, which requires API keys.
  std::vector<std::string> cors_origins = {};
  bool page = true;             // serve the web page at `/`
  std::string model_id = {};    // the model's name in the API; empty: its own
  std::string access_log = {};  // file for a JSON line per request; "-": stdout; empty: none
  double drain_seconds = 30;    // how long requests may run on after Shutdown

  std::string image_root = {};  // folder below which file: URLs of images may lead; empty: none
  // Hosts from which images may be fetched: "example.org", "[fd00::7]:443", "*" for all.
  std::vector<std::string> allow_image_hosts = {};
  bool allow_private_image_hosts = false;  // also those of private networks and of this machine

  int32_t max_connections = 4096;             // more get 503
  int32_t max_connections_per_client = 2048;  // per IP address; more get 429
  int64_t max_body_bytes = 8 << 20;           // larger requests get 413
  int32_t max_choices = 128;                  // n times the prompts of a request
  int32_t max_output_tokens = 0;              // per choice; 0: up to the context's end
};

// Serves the OpenAI-compatible API over an engine or an embedder, from its own thread. The program
// may keep using that; its requests share batches and the cache with the server's. The server
// handles no signals: call Shutdown on SIGTERM. Thread-safe, except for the destructor.
class EmbeddedServer {
 public:
  // Listens and starts to serve. The engine must outlive the server. kInvalidArgument for limits
  // below 1, and for an address that other machines can reach if there is no api_key_file and
  // `insecure` is not set; kNotFound or kInvalidArgument for unusable key or TLS files;
  // kUnavailable if the address is in use.
  static Result<std::unique_ptr<EmbeddedServer>> Start(ServedModel served,
                                                       const EmbeddedServerOptions& options);
  // Cancels running requests. Waits a few seconds at most.
  virtual ~EmbeddedServer() = default;

  virtual uint16_t port() const = 0;
  // Begins to shut down: drains the engine (LoadedModel::Drain), which then refuses all new
  // requests, not only the server's. Running ones may finish within drain_seconds; a second call
  // cancels them. Does not wait.
  virtual void Shutdown() = 0;
  // Rereads keys and certificate, for new requests and connections. If a file is unusable, logs
  // that and keeps the old content. Does not wait.
  virtual void Reload() = 0;
  // Waits until the server has ended. OK after Shutdown; the engine's error if the engine failed.
  virtual Status Wait() = 0;
};

}  // namespace tokamak
