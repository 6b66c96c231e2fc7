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
      debug_state_(
          std::make_shared<DebugState>(engine,
                                       DebugStateInfo{.version = options_.version,
                                                      .model_id = options_.model_id,
                                                      .started = static_cast<double>(started_)},
                                       io, options_.post_after)),
      preparer_(engine, options_.model_id, options_.requests, options_.parsers),
      id_salt_(RandomBits()),
      pool_(options_.preparing),
      making_pool_({.small_bytes = kShortText * 16,
                    .max_small_waiting = SIZE_MAX,
                    .max_large_waiting = SIZE_MAX}) {}

bool Api::IsPublic(std::string_view path) { return path == "/health" || path == "/openapi.json"; }

void Api::Handle(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const bool post =
      std::find(std::begin(kPostPaths), std::end(kPostPaths), request.path) != std::end(kPostPaths);
  if (!post && !IsGetPath(request.path)) {
    return exchange->Respond(ErrorResponse(
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
    return exchange->Respond(std::move(response));
  }
  if (post) return HandlePost(exchange);
  HandleGet(exchange);
}

bool Api::IsGetPath(std::string_view path) const {
  for (const std::string_view known :
       {"/health", "/openapi.json", "/v1/models", "/metrics", "/debug/state"}) {
    if (path == known) return true;
  }
  return path.starts_with(kModelPath) || (options_.page && IsPage(path));
}

void Api::HandleGet(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const std::string& path = request.path;
  if (path == "/debug/state") return debug_state_->Handle(exchange);
  if (path == "/health") return exchange->Respond(Health());
  if (path == "/metrics") return exchange->Respond(Metrics());
  if (path == "/openapi.json") return exchange->Respond({.body = std::string(OpenApiDocument())});
  if (path == "/v1/models") {
    return exchange->Respond({.body = FormatModels(options_.model_id, started_, engine_.model())});
  }
  if (path.starts_with(kModelPath)) {
    return GetModel(exchange, std::string_view(path).substr(kModelPath.size()));
  }
  exchange->Respond(PageResponse(request));
}

void Api::HandlePost(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (const std::string_view error = BodyFormatError(request); !error.empty()) {
    return exchange->Respond(ErrorResponse(415, error));
  }
  if (draining_) return exchange->Respond(ShuttingDownResponse());
  const std::string& path = request.path;
  if (path == kTokenizePath) {
    return Prepare(exchange, [this](std::string body) {
      return ToResponse(preparer_.Tokenize(std::move(body)));
    });
  }
  if (path == kDetokenizePath) {
    return Prepare(exchange, [this](std::string body) {
      return ToResponse(preparer_.Detokenize(std::move(body)));
    });
  }
  if (path == kEmbeddingsPath) {
    return Prepare(exchange, [this](std::string body) {
      return ToEmbedding(preparer_.Embed(std::move(body)));
    });
  }
  const bool chat = path == kChatPath;
  Prepare(exchange, [this, chat](std::string body) {
    return ToCompletion(preparer_.Prepare(chat, std::move(body)));
  });
}

// Names may have slashes in them, as they are or encoded.
void Api::GetModel(const std::shared_ptr<HttpExchange>& exchange, std::string_view name) {
  if (name != options_.model_id && DecodePercent(name) != options_.model_id) {
    return exchange->Respond(
        ErrorResponse(NotFound("model: this server has \"{}\" and no other", options_.model_id)));
  }
  exchange->Respond({.body = FormatModel(options_.model_id, started_, engine_.model())});
}

void Api::Prepare(const std::shared_ptr<HttpExchange>& exchange,
                  std::function<Answer(std::string body)> prepare) {
  std::string body = exchange->TakeBody();
  const size_t bytes = body.size();
  const Result<CallId> id = pool_.Push(
      bytes, [this, prepare = std::move(prepare), body = std::move(body)](CallId id) mutable {
        options_.post([this, id, answer = prepare(std::move(body))] { OnPrepared(id, answer); });
      });
  if (!id.ok()) return exchange->Respond(Refusal(id.status()));
  preparing_.emplace(*id, exchange);
  exchange->OnClientGone([this, id = *id] { OnClientGone(id); });
}

Api::Answer Api::ToCompletion(Result<PreparedCall> prepared) {
  // Shared, for answers can be copied and calls should not be.
  auto call = std::make_shared<Result<PreparedCall>>(std::move(prepared));
  return [this, call](const std::shared_ptr<HttpExchange>& exchange) {
    if (!call->ok()) return call->status();
    NoteIgnored((*call)->call.unknown_fields);
    return Submit(exchange, std::move(**call));
  };
}

Api::Answer Api::ToEmbedding(Result<PreparedEmbedding> prepared) {
  auto call = std::make_shared<Result<PreparedEmbedding>>(std::move(prepared));
  return [this, call](const std::shared_ptr<HttpExchange>& exchange) {
    if (!call->ok()) return call->status();
    NoteIgnored((*call)->call.unknown_fields);
    return StartEmbedding(engine_, exchange, std::move(**call), NextId("embd"), options_.model_id);
  };
}

std::string Api::NextId(std::string_view kind) {
  return fmt::format("{}-{:016x}{:08x}", kind, id_salt_, next_id_++);
}

Api::Answer Api::ToResponse(Result<PreparedAnswer> prepared) {
  auto answer = std::make_shared<Result<PreparedAnswer>>(std::move(prepared));
  return [this, answer](const std::shared_ptr<HttpExchange>& exchange) {
    if (!answer->ok()) return answer->status();
    NoteIgnored((*answer)->unknown_fields);
    exchange->Respond({.body = std::move((*answer)->body),
                       .headers = IgnoredFieldHeaders((*answer)->unknown_fields)});
    return Status();
  };
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

void Api::OnPrepared(CallId id, const Answer& answer) {
  const auto found = preparing_.find(id);
  if (found == preparing_.end()) return;
  const std::shared_ptr<HttpExchange> exchange = std::move(found->second);
  preparing_.erase(found);
  const Status status = answer(exchange);
  if (!status.ok()) exchange->Respond(Refusal(status));
  TellWhenPrepared();
}

// 429 while a queue is full; 503 when the server will not take the request later either.
HttpResponse Api::Refusal(const Status& status) const {
  if (!engine_.health().ok()) return ErrorResponse(status);
  const bool later = status.code() == StatusCode::kUnavailable;
  return later && draining_ ? ShuttingDownResponse() : BusyResponse(status);
}

Status Api::Submit(const std::shared_ptr<HttpExchange>& exchange, PreparedCall prepared) {
  Client client = options_.identify(exchange->request());
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
  const auto completion = std::make_shared<Completion>(
      engine_, exchange, std::move(prepared), std::move(head), options_.requests,
      preparer_.token_sizes(), [this](size_t bytes, auto make, auto then) {
        MakeText(bytes, std::move(make), std::move(then));
      });
  const Status status = completion->Start();
  // The engine speaks of the prompt, which a conversation's client has never seen.
  constexpr std::string_view kPrompt = "prompt: ";
  if (chat && status.message().starts_with(kPrompt)) {
    return Status(status.code(),
                  "messages: " + std::string(status.message().substr(kPrompt.size())));
  }
  return status;
}

void Api::OnClientGone(CallId id) {
  pool_.Cancel(id);
  preparing_.erase(id);
  TellWhenPrepared();
}

void Api::StartDraining(std::function<void()> on_prepared) {
  draining_ = true;
  on_prepared_ = std::move(on_prepared);
  TellWhenPrepared();
}

void Api::AbandonPreparing() {
  const auto abandoned = std::exchange(preparing_, {});
  for (const auto& [id, exchange] : abandoned) {
    pool_.Cancel(id);
    exchange->Respond(ShuttingDownResponse());
  }
  TellWhenPrepared();
}

void Api::MakeText(size_t bytes, std::function<std::string()> make,
                   std::function<void(std::string text)> then) {
  struct Job {
    std::function<std::string()> make;
    std::function<void(std::string text)> then;
    std::string text;
  };
  auto job = std::make_shared<Job>(Job{std::move(make), std::move(then), {}});
  ++making_;
  const auto deliver = [this, job] {
    --making_;
    job->then(std::move(job->text));
    if (making_ == 0 && on_made_) std::exchange(on_made_, nullptr)();
  };
  // Refused after Stop alone, when nobody is left to be answered.
  const auto pushed = making_pool_.Push(bytes, [this, job, deliver](CallId) {
    job->text = job->make();
    job->make = nullptr;  // the answer's parts: there is much to free
    options_.post(deliver);
  });
  if (!pushed.ok()) --making_;
}

void Api::WhenTextsAreMade(std::function<void()> on_made) {
  if (making_ == 0) return on_made();
  on_made_ = std::move(on_made);
}

void Api::Stop() {
  on_prepared_ = nullptr;
  on_made_ = nullptr;
  pool_.Stop();
  making_pool_.Stop();
  debug_state_->Stop();
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
