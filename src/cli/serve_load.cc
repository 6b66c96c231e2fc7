#include "cli/serve_load.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "cli/bench_load.h"
#include "cli/event_stream.h"

namespace tokamak::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr const char* kWords[] = {
    "time",   "people", "way",   "water", "day",    "man",    "word",  "thing",   "place",
    "work",   "year",   "name",  "line",  "letter", "boy",    "farm",  "end",     "house",
    "world",  "school", "plant", "food",  "sun",    "state",  "eye",   "city",    "tree",
    "story",  "sea",    "night", "life",  "north",  "book",   "paper", "music",   "river",
    "car",    "feet",   "side",  "cat",   "group",  "town",   "fire",  "problem", "piece",
    "king",   "space",  "hour",  "body",  "dog",    "family", "door",  "product", "wind",
    "ship",   "area",   "rock",  "order", "south",  "table",  "map",   "moon",    "island",
    "foot",   "system", "force", "blue",  "object", "gold",   "plane", "age",     "dry",
    "game",   "heat",   "color", "ball",  "field",  "air",    "land",  "light",   "home",
    "picture"};

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// Uniform in (0, 1].
double RandomUnit(uint64_t* state) {
  constexpr int32_t kSteps = 1 << 30;
  return static_cast<double>(RandomInRange(1, kSteps, state)) / kSteps;
}

class Generator;

// One request, from its beginning to its end.
class Request final : public HttpReceiver {
 public:
  explicit Request(Generator& generator) : generator_(generator) {}

  void OnHead(int status) override { status_ = status; }
  Status OnBody(std::string_view bytes) override {
    if (status_ == 200) {
      return stream_.Feed(bytes, [this](std::string_view data) { return OnEvent(data); });
    }
    if (error_.size() < EventStream::kMaxEventBytes) error_ += bytes;
    return Status();
  }
  void OnEnd(const Status& status) override;

 private:
  friend class Generator;

  Status OnEvent(std::string_view data);
  Status Outcome(const Status& status) const;

  Generator& generator_;
  const SteadyClock::time_point start_ = SteadyClock::now();
  int status_ = 0;
  std::string error_;  // body of an answer that is none
  EventStream stream_;
  bool done_ = false;
  std::vector<double> text_at_;  // seconds since the start, of each event with text
  StreamedChunk::Usage usage_;
  bool has_usage_ = false;
  double end_ = 0;
};

class Generator {
 public:
  Generator(const ServeLoad& load, HttpCaller& client)
      : load_(load), client_(client), state_(static_cast<uint64_t>(load.seed)) {
    uint64_t fixed = 0;
    shared_ = RandomWords(load.shared_prefix, &fixed);
  }

  ServeBenchResult Run() {
    start_ = SteadyClock::now();
    if (load_.rate > 0) {
      Arrive();
    } else {
      for (int32_t i = 0; i < load_.concurrency; ++i) StartNext();
    }
    client_.Run();
    return Summary();
  }

  void Ended(const Request& request, const Status& outcome);

 private:
  void Arrive() {
    StartNext();
    if (started_ < load_.requests) {
      client_.After(-std::log(RandomUnit(&state_)) / load_.rate, [this] { Arrive(); });
    }
  }
  void StartNext();
  std::string Body();
  ServeBenchResult Summary();

  const ServeLoad& load_;
  HttpCaller& client_;
  uint64_t state_;
  std::string shared_;
  SteadyClock::time_point start_;
  int32_t started_ = 0;
  int32_t ended_ = 0;
  ServeBenchResult result_;
  std::vector<double> ttft_ms_, itl_ms_, e2e_ms_;
};

Status Request::OnEvent(std::string_view data) {
  ASSIGN_OR_RETURN(const StreamedChunk chunk, ParseStreamedChunk(data));
  if (!chunk.text.empty()) text_at_.push_back(SecondsSince(start_));
  if (chunk.usage) {
    usage_ = *chunk.usage;
    has_usage_ = true;
  }
  done_ |= chunk.done;
  return Status();
}

Status Request::Outcome(const Status& status) const {
  if (!status.ok()) return status;
  if (status_ != 200) return Internal("HTTP status {}: {}", status_, ErrorMessage(error_));
  if (!done_) return DataLoss("the stream ended without [DONE]");
  return Status();
}

void Request::OnEnd(const Status& status) {
  end_ = SecondsSince(start_);
  generator_.Ended(*this, Outcome(status));
}

void Generator::StartNext() {
  if (started_ == load_.requests) return;
  ++started_;
  HttpCall call;
  call.target = load_.chat ? "/v1/chat/completions" : "/v1/completions";
  call.body = Body();
  if (!load_.api_key.empty()) call.headers.emplace_back("Authorization", "Bearer " + load_.api_key);
  client_.Post(std::move(call), std::make_shared<Request>(*this));
}

std::string Generator::Body() {
  const int32_t words = RandomInRange(load_.input.low, load_.input.high, &state_);
  const std::string text = shared_ + RandomWords(words, &state_);
  nlohmann::ordered_json body;
  if (!load_.model.empty()) body["model"] = load_.model;
  if (load_.chat) {
    body["messages"] = {{{"role", "user"}, {"content", text}}};
  } else {
    body["prompt"] = text;
  }
  body["max_tokens"] = RandomInRange(load_.output.low, load_.output.high, &state_);
  body["ignore_eos"] = true;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body.dump();
}

void Generator::Ended(const Request& request, const Status& outcome) {
  result_.seconds = SecondsSince(start_);
  const std::vector<double>& at = request.text_at_;
  if (outcome.ok()) {
    if (!at.empty()) ttft_ms_.push_back(at.front() * 1e3);
    for (size_t i = 1; i < at.size(); ++i) itl_ms_.push_back((at[i] - at[i - 1]) * 1e3);
    e2e_ms_.push_back(request.end_ * 1e3);
    result_.prompt_tokens += request.usage_.prompt_tokens;
    result_.cached_tokens += request.usage_.cached_tokens;
    result_.output_tokens +=
        request.has_usage_ ? request.usage_.completion_tokens : static_cast<int64_t>(at.size());
    if (!request.has_usage_) ++result_.without_usage;
  } else {
    ++result_.errors;
    if (result_.first_error.empty()) result_.first_error = outcome.message();
  }
  ++ended_;
  const int32_t tenth = std::max(1, load_.requests / 10);
  if (ended_ % tenth == 0) std::fprintf(stderr, "%d of %d requests\n", ended_, load_.requests);
  if (load_.rate <= 0) StartNext();
}

ServeBenchResult Generator::Summary() {
  result_.requests = load_.requests;
  result_.concurrency = load_.concurrency;
  result_.rate = load_.rate;
  result_.output_tok_s = static_cast<double>(result_.output_tokens) / result_.seconds;
  result_.requests_s = static_cast<double>(result_.requests - result_.errors) / result_.seconds;
  result_.ttft_ms = PercentilesOf(std::move(ttft_ms_));
  result_.itl_ms = PercentilesOf(std::move(itl_ms_));
  result_.e2e_ms = PercentilesOf(std::move(e2e_ms_));
  return std::move(result_);
}

}  // namespace

Result<ServeBenchResult> RunServeLoad(const ServeLoad& load) {
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpCaller> client,
                   HttpCaller::Create(load.url, load.timeout_seconds));
  return Generator(load, *client).Run();
}

std::string RandomWords(int32_t count, uint64_t* state) {
  std::string text;
  for (int32_t i = 0; i < count; ++i) {
    text += kWords[RandomInRange(0, std::size(kWords) - 1, state)];
    text += ' ';
  }
  return text;
}

}  // namespace tokamak::cli
