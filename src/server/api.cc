#include "server/api.h"

#include <ctime>
#include <random>
#include <utility>

#include "base/error.h"
#include "server/completion.h"
#include "server/errors.h"
#include "server/openai_response.h"

namespace tokamak {
namespace {

uint64_t RandomBits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// A page in a browser can make it send any text to a local port, but not with this type unless the
// server agrees.
bool IsJson(std::string_view content_type) {
  return content_type.empty() || content_type.starts_with("application/json");
}

}  // namespace

Api::Api(Engine& engine, Options options)
    : engine_(engine),
      options_(std::move(options)),
      started_(std::time(nullptr)),
      preparer_(engine, options_.model_id),
      id_salt_(RandomBits()),
      pool_(options_.preparing) {}

void Api::Handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  const bool get = request.method == "GET" || request.method == "HEAD";
  const auto wrong_method = [&](const char* allowed) {
    HttpResponse response = ErrorResponse(
        405, fmt::format("{} takes {}, not {}", request.path, allowed, request.method));
    response.headers.emplace_back("Allow", allowed);
    exchange->Respond(std::move(response));
  };
  if (request.path == "/health") {
    return get ? exchange->Respond(Health()) : wrong_method("GET");
  }
  if (!options_.keys.Accepts(request.authorization)) {
    return exchange->Respond(
        ErrorResponse(401, "missing or unknown API key; send \"Authorization: Bearer <key>\"",
                      "invalid_api_key"));
  }
  if (request.path == "/v1/models") {
    if (!get) return wrong_method("GET");
    return exchange->Respond({.body = FormatModels(options_.model_id, started_, engine_.model())});
  }
  const bool chat = request.path == "/v1/chat/completions";
  if (!chat && request.path != "/v1/completions") {
    return exchange->Respond(ErrorResponse(
        404, fmt::format("no such path; there are /v1/chat/completions, /v1/completions, "
                         "/v1/models and /health")));
  }
  if (request.method != "POST") return wrong_method("POST");
  if (!IsJson(request.content_type)) {
    return exchange->Respond(
        ErrorResponse(415, "send the body with \"Content-Type: application/json\""));
  }
  if (draining_) {
    return exchange->Respond(ErrorResponse(503, "the server is shutting down", "shutting_down"));
  }
  Complete(exchange, chat);
}

void Api::Complete(const std::shared_ptr<HttpExchange>& exchange, bool chat) {
  std::string body = exchange->TakeBody();
  const size_t bytes = body.size();
  const Result<CallId> id =
      pool_.Push(bytes, [this, chat, body = std::move(body)](CallId id) mutable {
        Result<PreparedCall> prepared = preparer_.Prepare(chat, std::move(body));
        options_.post([this, id, prepared = std::move(prepared)]() mutable {
          OnPrepared(id, std::move(prepared));
        });
      });
  // 503 and not 429: the server as a whole has too much to do, this client need not be the cause.
  // The same as for a full queue of the engine; clients retry it after Retry-After.
  if (!id.ok()) return exchange->Respond(ErrorResponse(id.status()));
  preparing_.emplace(*id, exchange);
  exchange->OnClientGone([this, id = *id] { OnClientGone(id); });
}

void Api::OnPrepared(CallId id, Result<PreparedCall> prepared) {
  const auto found = preparing_.find(id);
  if (found == preparing_.end()) return;
  const std::shared_ptr<HttpExchange> exchange = std::move(found->second);
  preparing_.erase(found);
  const Status status = prepared.ok() ? Submit(exchange, *std::move(prepared)) : prepared.status();
  if (!status.ok()) exchange->Respond(ErrorResponse(status));
  TellWhenPrepared();
}

Status Api::Submit(const std::shared_ptr<HttpExchange>& exchange, PreparedCall prepared) {
  const bool chat = prepared.call.chat;
  ResponseHead head;
  head.chat = chat;
  head.id = fmt::format("{}-{:016x}{:08x}", chat ? "chatcmpl" : "cmpl", id_salt_, next_id_++);
  head.created = std::time(nullptr);
  head.model = options_.model_id;
  head.system_fingerprint = engine_.system_fingerprint();
  const auto completion = std::make_shared<Completion>(
      engine_, exchange, std::move(prepared.call), std::move(prepared.prompts), std::move(head));
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
    exchange->Respond(ErrorResponse(503, "the server is shutting down", "shutting_down"));
  }
  TellWhenPrepared();
}

void Api::Stop() {
  on_prepared_ = nullptr;
  pool_.Stop();
}

void Api::TellWhenPrepared() {
  if (preparing_.empty() && on_prepared_) std::exchange(on_prepared_, nullptr)();
}

HttpResponse Api::Health() const {
  const EngineStats stats = engine_.stats();
  const Status health = engine_.health();
  const bool stuck = stats.seconds_since_progress > options_.stuck_seconds;
  const std::string_view status = !health.ok() ? "failed"
                                  : draining_  ? "draining"
                                  : stuck      ? "stuck"
                                               : "ok";
  HttpResponse response;
  response.status = status == "ok" ? 200 : 503;
  response.body = FormatHealth(status, health.message(), preparing_.size(), stats, engine_.model());
  return response;
}

}  // namespace tokamak
