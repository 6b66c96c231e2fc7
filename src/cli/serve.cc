// tokamak serve: the OpenAI-compatible server.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "server/server.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak serve                                 the default model at http://127.0.0.1:8080\n"
    "  tokamak serve model.gguf --port 9000 --max-seqs 16\n"
    "  tokamak serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n";

struct ServeFlags {
  EngineFlags engine;
  ServerOptions server;
  int32_t max_connections = 1024;
  int64_t max_body_bytes = 8 << 20;
};

int Serve(const ServeFlags& flags) {
  if (flags.max_connections < 1) return UsageError("--max-connections must be at least 1");
  if (flags.max_body_bytes < 1) return UsageError("--max-body-bytes must be at least 1");
  Result<std::unique_ptr<Engine>> engine = LoadEngine(flags.engine);
  if (!engine.ok()) return Fail(engine.status());
  ServerOptions options = flags.server;
  options.limits.max_connections = static_cast<size_t>(flags.max_connections);
  options.limits.max_body_bytes = static_cast<size_t>(flags.max_body_bytes);
  Result<std::unique_ptr<Server>> server = Server::Create(**engine, std::move(options));
  if (!server.ok()) return Fail(server.status());
  const ModelInfo& model = (*engine)->model();
  std::fprintf(stderr, "tokamak: %s (%s, %d threads, loaded in %.2f s)\n", model.name.c_str(),
               model.backend.c_str(), model.threads, model.load_seconds);
  std::fprintf(stderr, "tokamak: listening on http://%s:%d\n", flags.server.host.c_str(),
               (*server)->port());
  std::signal(SIGPIPE, SIG_IGN);  // a log reader that goes away ends no server
  const Status status = (*server)->Run();
  if (status.ok()) return kOk;
  const int code = Fail(status);
  // The device is in no known state and giving its memory back could hang; the system does it.
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

void AddServeCommand(CommandLine& line) {
  auto flags = std::make_shared<ServeFlags>();
  Flags f =
      line.Command("serve", "Serve the OpenAI API", kExamples, [flags] { return Serve(*flags); });
  f.Add("--host", flags->server.host, "Address to listen on");
  f.Add("--port", flags->server.port, "Port to listen on; 0: any free one");
  f.Add("--api-key-file", flags->server.api_key_file, "Ask clients for a key of this file");
  f.Add("--insecure", flags->server.insecure, "Let other machines in without a key");
  f.Add("--served-model-name", flags->server.model_id, "What clients call the model");
  f.Add("--drain-seconds", flags->server.drain_seconds,
        "How long running requests may go on after SIGTERM");
  f.Add("--max-connections", flags->max_connections, "More get 503");
  f.AddBytes("--max-body-bytes", flags->max_body_bytes, "Larger requests get 413 (default 8MiB)");
  AddEngineFlags(f, flags->engine);
}

}  // namespace tokamak::cli
