// One request to a server, from start to end, as its client saw it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loadgen/event_stream.h"
#include "server/transport/http_caller.h"

namespace tokamak::loadgen {

// Times are seconds since the run began. Latencies count from `intended`, the scheduled time, so a
// client or server that falls behind cannot hide it (no coordinated omission).
struct RequestRecord {
  int64_t conversation = 0;
  int32_t turn = 0;         // within the conversation, from 0
  int32_t input_words = 0;  // of this turn, without shared words and earlier turns
  int32_t output_asked = 0;
  double intended = 0;
  double sent = 0;              // when this client began the request
  std::vector<double> text_at;  // time of each event with text
  double end = 0;               // time of the last event or of the failure
  int http_status = 0;          // 0: no answer
  std::optional<StreamedChunk::Usage> usage;
  std::string error_kind;  // empty: success; otherwise one of the kinds below
  std::string error;

  bool ok() const { return error_kind.empty(); }
  // From the server's usage; without usage, the number of events with text.
  int64_t output_tokens() const {
    return usage ? usage->completion_tokens : static_cast<int64_t>(text_at.size());
  }
  double e2e() const { return end - intended; }
  // Time to the first text; absent without text.
  std::optional<double> ttft() const;
  // Mean time per token after the first; absent with fewer than two.
  std::optional<double> tpot() const;
};

// The error kinds:
//   "connect"     no connection could be made    "closed"      it ended before the answer did
//   "timeout"     too long without a byte, or altogether
//   "http_NNN"    answered with that status      "server"      an error came in the stream
//   "malformed"   no event stream of chunks      "incomplete"  it ended without finish_reason

// The conversation so far, as (role, text).
using Messages = std::vector<std::pair<std::string, std::string>>;

struct RequestShape {
  bool chat = true;        // /v1/chat/completions, else /v1/completions
  std::string model;       // empty: not sent
  std::string extra_body;  // a JSON object merged into each body (RFC 7396), or empty
};

// Returns the body of a streamed request. For completions the messages are joined to one text.
std::string RequestBody(const RequestShape& shape, const Messages& messages, int32_t output_tokens);

// Receives one answer and passes the record and the text to `on_end`.
class RequestReceiver final : public HttpReceiver {
 public:
  using Clock = std::chrono::steady_clock;
  using OnDone = std::function<void(RequestRecord record, std::string text)>;

  // `start`: when the run began. `record` holds the fields that are known before sending. With
  // `keep_text` the answer's text is kept, up to 1 MiB.
  RequestReceiver(Clock::time_point start, RequestRecord record, bool keep_text, OnDone on_end)
      : start_(start),
        record_(std::move(record)),
        keep_text_(keep_text),
        on_end_(std::move(on_end)) {}

  void OnSent() override { connected_ = true; }
  Status OnHead(const ReceivedHead& head) override {
    record_.http_status = head.status;
    return Status();
  }
  Status OnBody(std::string_view bytes) override;
  void OnEnd(const Status& status) override;

 private:
  Status OnEvent(std::string_view data, double now);
  void Fail(std::string kind, std::string_view message);
  double Now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Clock::time_point start_;
  RequestRecord record_;
  const bool keep_text_;
  OnDone on_end_;
  EventStream stream_;
  std::string text_;
  std::string error_body_;  // the body of an error status
  Status event_error_;      // an invalid event, or the error that an event reported
  bool connected_ = false;
  bool finished_ = false;  // a finish_reason or [DONE] has come
};

// Asks /v1/models which model the server serves, and what server it is.
struct ServedModel {
  std::string id;        // empty: unknown
  std::string owned_by;  // "tokamak", "vllm", "llamacpp", ...; may be empty
};
ServedModel AskForModel(HttpCaller& caller, const std::string& api_key);

void AddKey(HttpCall* call, const std::string& api_key);

}  // namespace tokamak::loadgen
