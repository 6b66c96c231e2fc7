#include "server/api.h"

#include <ctime>
#include <random>

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
      chat_(ChatMl::FromTemplate(engine.model().chat_template)),
      id_salt_(RandomBits()) {}

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
  const Status status = StartCompletion(exchange, chat);
  if (!status.ok()) exchange->Respond(ErrorResponse(status));
}

Status Api::StartCompletion(const std::shared_ptr<HttpExchange>& exchange, bool chat) {
  const std::string& body = exchange->request().body;
  ASSIGN_OR_RETURN(CompletionCall call, chat ? ParseChatCall(body) : ParseCompletionCall(body));
  if (!call.model.empty() && call.model != options_.model_id) {
    return NotFound("model: this server has \"{}\" and no other", options_.model_id);
  }
  RETURN_IF_ERROR(Validate(call.sampling, engine_.model().vocab_size));
  // One seed for all prompts of the call, exact as a JSON number.
  if (!call.sampling.seed) call.sampling.seed = RandomBits() >> 11;
  ASSIGN_OR_RETURN(auto prompts, TokenizePrompts(call));
  ResponseHead head;
  head.chat = chat;
  head.id = fmt::format("{}-{:016x}{:08x}", chat ? "chatcmpl" : "cmpl", id_salt_, next_id_++);
  head.created = std::time(nullptr);
  head.model = options_.model_id;
  head.system_fingerprint = engine_.system_fingerprint();
  const auto completion = std::make_shared<Completion>(engine_, exchange, std::move(call),
                                                       std::move(prompts), std::move(head));
  const Status status = completion->Start();
  // The engine speaks of the prompt, which a conversation's client has never seen.
  constexpr std::string_view kPrompt = "prompt: ";
  if (chat && status.message().starts_with(kPrompt)) {
    return Status(status.code(),
                  "messages: " + std::string(status.message().substr(kPrompt.size())));
  }
  return status;
}

Result<std::vector<std::vector<int32_t>>> Api::TokenizePrompts(const CompletionCall& call) const {
  std::vector<std::vector<int32_t>> prompts;
  if (call.chat) {
    if (!chat_.ok()) return chat_.status();
    // Template text spells its special tokens, and carries the begin-of-text token if it wants one.
    const std::string text = chat_->Render(call.messages, /*add_generation_prompt=*/true);
    ASSIGN_OR_RETURN(auto ids, engine_.Tokenize(text, /*add_special=*/false, true));
    prompts.push_back(std::move(ids));
  }
  for (size_t i = 0; i < call.prompts.size(); ++i) {
    const PromptInput& prompt = call.prompts[i];
    std::vector<int32_t> ids;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      ASSIGN_OR_RETURN(ids, engine_.Tokenize(*text, call.add_special_tokens, true));
    } else {
      ids = std::get<std::vector<int32_t>>(prompt);
    }
    const std::string path =
        call.prompts.size() == 1 ? std::string("prompt") : fmt::format("prompt[{}]", i);
    if (ids.empty()) return InvalidArgument("{}: must hold at least one token", path);
    for (const int32_t id : ids) {
      if (id < 0 || id >= engine_.model().vocab_size) {
        return InvalidArgument("{}: token id {} is outside [0, {})", path, id,
                               engine_.model().vocab_size);
      }
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

HttpResponse Api::Health() const {
  const EngineStats stats = engine_.stats();
  const bool stuck = stats.seconds_since_progress > options_.stuck_seconds;
  const char* status = draining_ ? "draining" : stuck ? "stuck" : "ok";
  HttpResponse response;
  response.status = draining_ || stuck ? 503 : 200;
  response.body = FormatHealth(status, stats, engine_.model());
  return response;
}

}  // namespace tokamak
