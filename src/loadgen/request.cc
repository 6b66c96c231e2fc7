#include "loadgen/request.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json/json_value.h"

namespace tokamak::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxKeptText = size_t{1} << 20;
constexpr double kModelSeconds = 10;  // for /v1/models

// Receives a small answer completely.
class BodyReceiver final : public HttpReceiver {
 public:
  Status OnHead(const ReceivedHead& head) override {
    ok_ = head.status == 200;
    return Status();
  }
  Status OnBody(std::string_view bytes) override {
    if (body_.size() + bytes.size() > EventStream::kMaxEventBytes) {
      return ResourceExhausted("the answer is too long");
    }
    body_ += bytes;
    return Status();
  }
  void OnEnd(const Status& status) override { ok_ = ok_ && status.ok(); }

  std::string body() const { return ok_ ? body_ : std::string(); }

 private:
  bool ok_ = false;
  std::string body_;
};

std::string StringMember(const JsonValue& object, const char* name) {
  const JsonValue* found = object.Find(name);
  return found != nullptr && found->is_string() ? *found->AsString() : std::string();
}

}  // namespace

std::optional<double> RequestRecord::ttft() const {
  return text_at.empty() ? std::nullopt : std::optional(text_at.front() - intended);
}

std::optional<double> RequestRecord::tpot() const {
  const int64_t tokens = output_tokens();
  if (tokens < 2 || text_at.size() < 2) return std::nullopt;
  return (text_at.back() - text_at.front()) / static_cast<double>(tokens - 1);
}

std::string RequestBody(const RequestShape& shape, const Messages& messages,
                        int32_t output_tokens) {
  Json body;
  if (!shape.model.empty()) body["model"] = shape.model;
  if (shape.chat) {
    Json list = Json::array();
    for (const auto& [role, content] : messages) {
      list.push_back({{"role", role}, {"content", content}});
    }
    body["messages"] = std::move(list);
  } else {
    std::string prompt;
    for (const auto& message : messages) prompt += message.second;
    body["prompt"] = std::move(prompt);
  }
  body["max_tokens"] = output_tokens;
  body["ignore_eos"] = true;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (!shape.extra_body.empty()) body.merge_patch(Json::parse(shape.extra_body, nullptr, false));
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status RequestReceiver::OnBody(std::string_view bytes) {
  if (record_.http_status == 200) {
    const double now = Now();  // before parsing, which takes time
    return stream_.Feed(bytes, [&](std::string_view data) { return OnEvent(data, now); });
  }
  if (error_body_.size() < EventStream::kMaxEventBytes) error_body_ += bytes;
  return Status();
}

Status RequestReceiver::OnEvent(std::string_view data, double now) {
  Result<StreamedChunk> chunk = ParseStreamedChunk(data);
  if (!chunk.ok()) {
    event_error_ = chunk.status();
    return event_error_;
  }
  record_.end = now;
  if (!chunk->text.empty()) {
    record_.text_at.push_back(now);
    if (keep_text_ && text_.size() < kMaxKeptText) text_ += chunk->text;
  }
  if (chunk->usage) record_.usage = chunk->usage;
  finished_ |= chunk->done || chunk->finished;
  return Status();
}

void RequestReceiver::Fail(std::string kind, std::string_view message) {
  record_.error_kind = std::move(kind);
  record_.error = message;
  record_.end = Now();
}

void RequestReceiver::OnEnd(const Status& status) {
  if (!event_error_.ok()) {
    const bool server = event_error_.code() == StatusCode::kInternal;
    Fail(server ? "server" : "malformed", event_error_.message());
  } else if (record_.http_status != 0 && record_.http_status != 200 && status.ok()) {
    Fail(fmt::format("http_{}", record_.http_status),
         fmt::format("HTTP status {}: {}", record_.http_status, ErrorMessage(error_body_)));
  } else if (!status.ok() && !finished_) {  // after a complete answer any end is fine
    const bool timeout = status.code() == StatusCode::kDeadlineExceeded;
    const bool stream = status.code() == StatusCode::kDataLoss;
    Fail(timeout      ? "timeout"
         : stream     ? "malformed"
         : connected_ ? "closed"
                      : "connect",
         status.message());
  } else if (!finished_) {
    Fail("incomplete", "the stream ended without a finish_reason and without [DONE]");
  }
  on_end_(std::move(record_), std::move(text_));
}

void AddKey(HttpCall* call, const std::string& api_key) {
  if (!api_key.empty()) call->headers.emplace_back("Authorization", "Bearer " + api_key);
}

ServedModel AskForModel(HttpCaller& caller, const std::string& api_key) {
  HttpCall call;
  call.target = "/v1/models";
  call.limit_seconds = kModelSeconds;
  AddKey(&call, api_key);
  const auto receiver = std::make_shared<BodyReceiver>();
  caller.Send(std::move(call), receiver);
  caller.Run();
  const std::optional<JsonValue> json = JsonValue::Parse(receiver->body(), {});
  const JsonValue* data = json ? json->Find("data") : nullptr;
  if (data == nullptr || !data->is_array() || data->size() == 0) return {};
  const JsonValue& first = data->AsArray()->front();
  return {.id = StringMember(first, "id"), .owned_by = StringMember(first, "owned_by")};
}

}  // namespace tokamak::loadgen
