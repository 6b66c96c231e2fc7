#include "server/api.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random_bits.h"
#include "server/monitor/metrics.h"
#include "server/openai/completion.h"
#include "server/openai/embedding.h"
#include "server/openai/errors.h"
#include "server/openai/openapi.h"
#include "server/openai/other_fields.h"
#include "server/openai/response.h"
#include "server/page/page.h"
#include "server/transport/mailbox.h"
#include "server/transport/request_head.h"

namespace tokamak {
namespace {

// Parameters, such as a charset, come after the type (RFC 9110, section 8.3.1).
bool IsJson(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  type.erase(type.find_last_not_of(" \t") + 1);
  return SameName(type, "application/json");
}

// The fault in how the body was sent, or "". A page in a browser can make it send any text to
// any server, with another type or none, but not with this one unless the server agrees (access.h
// refuses pages too; this holds for browsers that do not say who asks).
std::string_view BodyFormatError(const HttpRequest& request) {
  if (!IsJson(request.content_type)) {
    return "send the body with \"Content-Type: application/json\"";
  }
  const std::string_view coding = request.Header("content-encoding");
  if (!coding.empty() && !SameName(coding, "identity")) {
    return "send the body as it is: no Content-Encoding is supported";
  }
  return "";
}

// A client makes up as many names as it likes: the log has this many of them, in all.
constexpr size_t kMaxLoggedFields = 256;
constexpr size_t kMaxFieldBytes = 64;

constexpr std::string_view kChatPath = "/v1/chat/completions";
constexpr std::string_view kEmbeddingsPath = "/v1/embeddings";
constexpr std::string_view kTokenizePath = "/tokenize";
constexpr std::string_view kDetokenizePath = "/detokenize";
constexpr std::string_view kModelPath = "/v1/models/";
constexpr std::string_view kPostPaths[] = {kChatPath, "/v1/completions", kEmbeddingsPath,
                                           kTokenizePath, kDetokenizePath};

// "%2F" is a slash. What is no such escape stays.
std::string DecodePercent(std::string_view text) {
  const auto digit = [](char c) {
    const char lower = static_cast<char>(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    decoded += escape ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    i += escape ? 2 : 0;
  }
  return decoded;
}

}  // namespace

Api::Api(Engine& engine, boost::asio::io_context& io, Options options)
    : engine_(engine),
      options_(std::move(options)),
      started_(std::time(nullptr)),
      debug_state_(engine,
                   {.version = options_.version,
                    .model_id = options_.model_id,
                    .started = static_cast<double>(started_)},
                   io),
      preparer_(engine, options_.model_id, options_.requests, options_.parsers),
      id_salt_(RandomBits()),
      pool_(options_.preparing) {}

bool Api::IsPublic(std::string_view path) { return path == "/health" || path == "/openapi.json"; }

Awaitable<> Api::Handle(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const bool post =
      std::find(std::begin(kPostPaths), std::end(kPostPaths), request.path) != std::end(kPostPaths);
  if (!post && !IsGetPath(request.path)) {
    co_return exchange.Respond(ErrorResponse(
        404, fmt::format("no such path; there are {}, /v1/models, /openapi.json, /metrics, "
                         "/debug/state and /health",
                         fmt::join(kPostPaths, ", "))));
  }
  const bool allowed =
      post ? request.method == "POST" : request.method == "GET" || request.method == "HEAD";
  if (!allowed) {
    const char* const method = post ? "POST" : "GET";
    HttpResponse response = ErrorResponse(
        405, fmt::format("{} takes {}, not {}", request.path, method, request.method));
    response.headers.emplace_back("Allow", method);
    co_return exchange.Respond(std::move(response));
  }
  if (post) {
    co_await HandlePost(exchange);
  } else if (request.path == "/debug/state") {
    co_await debug_state_.Handle(exchange);
  } else {
    HandleGet(exchange);
  }
}

bool Api::IsGetPath(std::string_view path) const {
  for (const std::string_view known :
       {"/health", "/openapi.json", "/v1/models", "/metrics", "/debug/state"}) {
    if (path == known) return true;
  }
  return path.starts_with(kModelPath) || (options_.page && IsPage(path));
}

void Api::HandleGet(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const std::string& path = request.path;
  if (path == "/health") return exchange.Respond(Health());
  if (path == "/metrics") return exchange.Respond(Metrics());
  if (path == "/openapi.json") return exchange.Respond({.body = std::string(OpenApiDocument())});
  if (path == "/v1/models") {
    return exchange.Respond({.body = FormatModels(options_.model_id, started_, engine_.model())});
  }
  if (path.starts_with(kModelPath)) {
    return GetModel(exchange, std::string_view(path).substr(kModelPath.size()));
  }
  exchange.Respond(PageResponse(request));
}

Awaitable<> Api::HandlePost(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  if (const std::string_view error = BodyFormatError(request); !error.empty()) {
    co_return exchange.Respond(ErrorResponse(415, error));
  }
  if (draining_) co_return exchange.Respond(ShuttingDownResponse());
  if (request.path == kTokenizePath || request.path == kDetokenizePath) {
    co_await Tokenize(exchange, request.path == kDetokenizePath);
  } else if (request.path == kEmbeddingsPath) {
    co_await Embed(exchange);
  } else {
    co_await Complete(exchange, request.path == kChatPath);
  }
}

// Names may have slashes in them, as they are or encoded.
void Api::GetModel(Exchange& exchange, std::string_view name) {
  if (name != options_.model_id && DecodePercent(name) != options_.model_id) {
    return exchange.Respond(
        ErrorResponse(NotFound("model: this server has \"{}\" and no other", options_.model_id)));
  }
  exchange.Respond({.body = FormatModel(options_.model_id, started_, engine_.model())});
}

Awaitable<> Api::Complete(Exchange& exchange, bool chat) {
  Preparing call(*this, exchange);
  const std::function<Result<PreparedCall>(std::string)> prepare = [this, chat](std::string body) {
    return preparer_.Prepare(chat, std::move(body));
  };
  Result<PreparedCall> prepared = co_await Prepare(call, prepare);
  std::optional<Completion> completion;
  Status status = prepared.status();
  if (status.ok()) {
    NoteIgnored(prepared->call.unknown_fields);
    status = Submit(exchange, *std::move(prepared), completion);
  }
  call.End();
  if (!status.ok()) co_return exchange.Respond(Refusal(status));
  co_await completion->Answer();
}

Awaitable<> Api::Embed(Exchange& exchange) {
  Preparing call(*this, exchange);
  const std::function<Result<PreparedEmbedding>(std::string)> prepare = [this](std::string body) {
    return preparer_.Embed(std::move(body));
  };
  Result<PreparedEmbedding> prepared = co_await Prepare(call, prepare);
  std::optional<Embedding> embedding;
  Status status = prepared.status();
  if (status.ok()) {
    NoteIgnored(prepared->call.unknown_fields);
    embedding.emplace(engine_, exchange, *std::move(prepared), NextId("embd"), options_.model_id);
    status = embedding->Submit();
  }
  call.End();
  if (!status.ok()) co_return exchange.Respond(Refusal(status));
  co_await embedding->Answer();
}

Awaitable<> Api::Tokenize(Exchange& exchange, bool back) {
  Preparing call(*this, exchange);
  const std::function<Result<PreparedAnswer>(std::string)> prepare = [this,
                                                                      back](std::string body) {
    return back ? preparer_.Detokenize(std::move(body)) : preparer_.Tokenize(std::move(body));
  };
  Result<PreparedAnswer> prepared = co_await Prepare(call, prepare);
  if (!prepared.ok()) co_return exchange.Respond(Refusal(prepared.status()));
  NoteIgnored(prepared->unknown_fields);
  exchange.Respond({.body = std::move(prepared->body),
                    .headers = IgnoredFieldHeaders(prepared->unknown_fields)});
}

template <typename T>
Awaitable<Result<T>> Api::Prepare(Preparing& call,
                                  const std::function<Result<T>(std::string)>& prepare) {
  Exchange& exchange = call.exchange();
  Mailbox<Result<T>> mail(exchange);
  std::string body = exchange.TakeBody();
  const size_t bytes = body.size();
  const Result<LowPriorityPool::JobId> job = pool_.Push(
      bytes, [prepare, sender = mail.sender(), body = std::move(body)](
                 LowPriorityPool::JobId) mutable { sender.Put(prepare(std::move(body))); });
  if (!job.ok()) co_return job.status();
  std::vector<Result<T>> prepared = mail.Take();
  while (prepared.empty() && call.wanted()) {
    co_await exchange.Wait();
    prepared = mail.Take();
  }
  if (!call.wanted()) {
    pool_.Cancel(*job);
    co_return Status(StatusCode::kCancelled, "nobody waits for it");
  }
  co_return std::move(prepared.front());
}

void Api::Preparing::End() {
  if (api_.preparing_.erase(this) > 0) api_.TellWhenPrepared();
}

void Api::Preparing::Abandon() {
  exchange_.Respond(ShuttingDownResponse());
  exchange_.Notify();
}

std::string Api::NextId(std::string_view kind) {
  return fmt::format("{}-{:016x}{:08x}", kind, id_salt_, next_id_++);
}

// Names only: what clients send as values may be private.
void Api::NoteIgnored(const std::vector<std::string>& names) {
  unknown_fields_ += static_cast<int64_t>(names.size());
  std::vector<std::string> fresh;
  for (const std::string& name : names) {
    if (logged_fields_.size() == kMaxLoggedFields) break;
    if (logged_fields_.insert(name.substr(0, kMaxFieldBytes)).second) fresh.push_back(name);
  }
  if (fresh.empty()) return;
  LogWarning("ignored fields of a request: {} (each name is logged once)", IgnoredFieldList(fresh));
}

// 429 while a queue is full; 503 when the server will not take the request later either.
HttpResponse Api::Refusal(const Status& status) const {
  if (!engine_.health().ok()) return ErrorResponse(status);
  const bool later = status.code() == StatusCode::kUnavailable;
  return later && draining_ ? ShuttingDownResponse() : BusyResponse(status);
}

Status Api::Submit(Exchange& exchange, PreparedCall prepared,
                   std::optional<Completion>& completion) {
  Client client = options_.identify(exchange.request());
  if (prepared.call.priority > client.max_priority) {
    return InvalidArgument(
        "priority: must be at most {}, got {}; more takes a key that may have it (priority=N "
        "behind the key in the server's key file)",
        client.max_priority, prepared.call.priority);
  }
  prepared.client = std::move(client.name);
  const bool chat = prepared.call.chat;
  ResponseHead head;
  head.chat = chat;
  head.id = NextId(chat ? "chatcmpl" : "cmpl");
  head.created = std::time(nullptr);
  head.model = options_.model_id;
  head.system_fingerprint = engine_.system_fingerprint();
  completion.emplace(engine_, exchange, std::move(prepared), std::move(head), options_.requests,
                     *preparer_.token_sizes(), text_maker_);
  const Status status = completion->Submit();
  // The engine speaks of the prompt, which a conversation's client has never seen.
  constexpr std::string_view kPrompt = "prompt: ";
  if (chat && status.message().starts_with(kPrompt)) {
    return Status(status.code(),
                  "messages: " + std::string(status.message().substr(kPrompt.size())));
  }
  return status;
}

void Api::StartDraining(std::function<void()> on_prepared) {
  draining_ = true;
  on_prepared_ = std::move(on_prepared);
  TellWhenPrepared();
}

void Api::AbandonPreparing() {
  for (Preparing* call : preparing_) call->Abandon();
}

void Api::Stop() {
  on_prepared_ = nullptr;
  pool_.Stop();
  text_maker_.Stop();
  debug_state_.Stop();
}

void Api::TellWhenPrepared() {
  if (preparing_.empty() && on_prepared_) std::exchange(on_prepared_, nullptr)();
}

Api::HealthState Api::CheckHealth(const EngineStats& stats) const {
  if (const Status status = engine_.health(); !status.ok()) {
    return {"failed", std::string(status.message())};
  }
  if (draining_) return {"draining", ""};
  if (stats.seconds_since_progress > options_.stuck_seconds) return {"stuck", ""};
  const double seconds = pool_.longest_seconds().value_or(-1);
  if (seconds < options_.preparing.stuck_seconds) return {"ok", ""};
  return {"stuck",
          fmt::format("a request has been read, rendered or tokenized for {:.0f} s, and should "
                      "have taken less than {:.0f}; others may wait behind it until the server is "
                      "started again",
                      seconds, options_.preparing.stuck_seconds)};
}

HttpResponse Api::Health() const {
  const EngineStats stats = engine_.stats();
  const HealthState state = CheckHealth(stats);
  HttpResponse response;
  response.status = state.name == "ok" ? 200 : 503;
  response.body = FormatHealth(state.name, state.error, preparing_.size(), stats, engine_.model());
  return response;
}

HttpResponse Api::Metrics() const {
  MetricsInput input;
  input.engine = engine_.stats();
  input.healthy = CheckHealth(input.engine).name == "ok";
  if (options_.observer != nullptr) {
    input.http = options_.observer->counters();
    input.log_lines_dropped = options_.observer->lines_dropped();
  }
  input.version = options_.version;
  input.fingerprint = engine_.system_fingerprint();
  input.model = options_.model_id;
  input.backend = engine_.model().backend;
  input.preparing = preparing_.size();
  input.unknown_fields = unknown_fields_;
  input.started = static_cast<double>(started_);
  HttpResponse response;
  response.content_type = kMetricsContentType;
  response.body = FormatMetrics(input);
  return response;
}

}  // namespace tokamak
