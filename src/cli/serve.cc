// tokamak serve: the OpenAI-compatible server.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/byte_count.h"
#include "base/text.h"
#include "base/version.h"
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
  EngineOptions engine;
  ServerOptions server;
};

// Raises the soft limit on open files: the usual 1,024 is too low for many connections.
void AllowDescriptors(size_t sockets) {
  constexpr rlim_t kOthers = 256;  // weights, logs, and connections being refused
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(sockets) + 2 * kOthers;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The maximum time from the end of serving to the end of the process: a thread may be stuck.
constexpr std::chrono::seconds kEndSeconds{10};
constexpr std::chrono::seconds kStuckSeconds{1};  // if a thread is still working on a request

// Ends the process with success if it has not ended by itself.
void ExitWithin(std::chrono::seconds seconds) {
  std::thread([seconds] {
    std::this_thread::sleep_for(seconds);
    std::_Exit(kOk);
  }).detach();
}

template <typename Loaded>
int ServeModel(const ServeFlags& flags, const Result<std::unique_ptr<Loaded>>& loaded) {
  if (!loaded.ok()) return Fail(loaded.status());
  ServerOptions options = flags.server;
  options.version = VersionText();
  if (options.access_log == "none") options.access_log.clear();
  Result<std::unique_ptr<Server>> server = Server::Create(**loaded, std::move(options));
  if (!server.ok()) return Fail(server.status());
  const ModelInfo& model = (*loaded)->model();
  std::fprintf(stderr, "tokamak: %s (%s, %d threads, loaded in %.2f s)\n", model.name.c_str(),
               model.backend.c_str(), model.threads, model.load_seconds);
  if (!model.draft_model.empty()) {
    std::fprintf(stderr, "tokamak: drafts by %s (weights: %s, KV cache: %s per token)\n",
                 model.draft_model.c_str(), ByteCount(model.draft_weight_bytes).c_str(),
                 ByteCount(model.draft_kv_token_bytes).c_str());
  }
  if (const std::string defaults = model.sampling.ToString(); !defaults.empty()) {
    std::fprintf(stderr, "tokamak: sampling by default: %s\n", defaults.c_str());
  }
  const bool brackets = flags.server.host.find(':') != std::string::npos;  // IPv6
  std::fprintf(stderr, "tokamak: listening on %s://%s%s%s:%d\n",
               flags.server.tls_cert_file.empty() ? "http" : "https", brackets ? "[" : "",
               flags.server.host.c_str(), brackets ? "]" : "", (*server)->port());
  AllowDescriptors(MaxOpenSockets(flags.server));
  std::signal(SIGPIPE, SIG_IGN);  // the end of a log reader must not end the server
  const Status status = (*server)->Run();
  if (!status.ok()) {
    const int code = Fail(status);
    // Freeing the memory of a failed device may hang; the system frees it all.
    std::fflush(nullptr);
    std::_Exit(code);
  }
  ExitWithin((*server)->busy() ? kStuckSeconds : kEndSeconds);
  return kOk;
}

int Serve(const ServeFlags& flags) {
  const Status ranges = CheckRanges(flags.server);
  if (!ranges.ok()) return UsageError(WithFlags(ranges.message()));
  EngineOptions options = flags.engine;
  const Result<std::string> path = ResolveModel(options.model);
  if (!path.ok()) return Fail(path.status());
  options.model = *path;
  const Result<Task> task = FindTask(options);
  if (!task.ok()) return Fail(task.status());
  return *task == Task::kEmbed ? ServeModel(flags, LoadEmbedder(options))
                               : ServeModel(flags, LoadEngine(options));
}

}  // namespace

void AddServeCommand(CommandLine& line) {
  auto flags = std::make_shared<ServeFlags>();
  Flags f =
      line.Command("serve", "Serve the OpenAI API", kExamples, [flags] { return Serve(*flags); });
  f.Add("--host", flags->server.host, "Address to listen on");
  f.Add("--port", flags->server.port, "Port to listen on; 0: any free one");
  f.Add("--api-key-file", flags->server.api_key_file,
        "File of API keys; clients must send one of them");
  f.Add("--insecure", flags->server.insecure, "Accept clients on other machines without a key");
  f.Add("--tls-cert", flags->server.tls_cert_file,
        "Certificate chain (PEM); read again when it changes");
  f.Add("--tls-key", flags->server.tls_key_file, "Private key of the certificate (PEM)");
  f.Add("--allowed-host", flags->server.allowed_hosts,
        "Further name to accept in Host headers, such as a proxy's; repeatable");
  f.Add("--cors-origin", flags->server.cors_origins,
        "Let web pages of this origin call the API, such as https://example.org; * for all, which "
        "needs keys; repeatable");
  f.Add("--served-model-name", flags->server.model_id, "Model name in the API");
  f.AddNegated("--no-page", flags->server.page, "Serve only the API, without the web page");
  f.Add("--drain-seconds", flags->server.drain_seconds,
        "Seconds that running requests may take after SIGTERM");
  f.Add("--tool-call-parser", flags->server.parsers.tool_calls,
        "How the model writes tool calls: auto (from its template), none, hermes, mistral, ...");
  f.Add("--reasoning-parser", flags->server.parsers.reasoning,
        "How the model marks its reasoning: auto (from its template), none, think, ...");
  f.Add("--access-log", flags->server.access_log,
        "One line of JSON per request: a file, - for stdout, or none (the default)");
  f.Add("--max-connections", flags->server.max_connections,
        "Open connections; further ones get 503");
  f.Add("--max-connections-per-client", flags->server.max_connections_per_client,
        "Open connections of one address; further ones get 429");
  f.Add("--max-choices", flags->server.max_choices,
        "Choices of one request: n, or the beams of a search, times its prompts");
  f.Add("--max-output-tokens", flags->server.max_output_tokens,
        "Output tokens of each choice; 0: as many as the context holds");
  f.Add("--max-logprobs", flags->engine.max_logprobs,
        "Alternatives that logprobs and prompt_logprobs may ask for; -1: the whole vocabulary");
  f.Add("--max-images", flags->engine.max_images, "Images in one prompt, if the model takes any");
  f.AddBytes("--max-image-bytes", flags->engine.max_image_bytes,
             "Size of an image's file (default 32MiB)");
  f.Add("--max-image-pixels", flags->engine.max_image_pixels,
        "Width times height of an image; decoding takes up to 14 bytes for each");
  AddImageOptions(f, flags->engine.image_options);
  f.Add("--image-root", flags->server.image_root,
        "Folder whose files clients may show the model by file: URLs; otherwise none");
  f.AddParsed(
      "--allow-image-hosts", "HOST[:PORT],...",
      [&hosts = flags->server.allow_image_hosts](const std::string& list) {
        for (const std::string_view host : Split(list, ',')) hosts.emplace_back(host);
        return Status();
      },
      "Hosts from which clients may have images fetched by http and https URLs, or * for all; "
      "otherwise none");
  f.Add("--allow-private-image-hosts", flags->server.allow_private_image_hosts,
        "Let these hosts be on private networks or this machine");
  f.AddBytes("--max-answer-bytes", flags->server.requests.max_answer_bytes,
             "Requests for longer answers get 400 (default 48MiB)");
  f.AddBytes("--max-body-bytes", flags->server.max_body_bytes,
             "Larger requests get 413 (default 8MiB)");
  AddEngineFlags(f, flags->engine);
  f.Group("Sampling defaults");
  AddDefaultSamplingFlags(f, flags->engine.sampling);
}

}  // namespace tokamak::cli
