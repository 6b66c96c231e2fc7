#include "loadgen/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"

namespace tokamak::loadgen {
namespace {

using Clock = RequestReceiver::Clock;

constexpr double kTickSeconds = 0.1;
constexpr double kRetrySeconds = 0.1;
constexpr uint64_t kArrivalStream = 0x41;

double ThreadCpuSeconds() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Raises the limit: each request in flight has a socket, and the rate sets how many there are.
void AllowManySockets() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct Session {
  ConversationSpec spec;
  size_t next_turn = 0;
  Messages messages;
};

// Not thread-safe: everything happens on the thread that calls Run.
class Generator {
 public:
  Generator(const LoadSpec& load, const LoadObserver& observer, HttpCaller& caller)
      : load_(load),
        observer_(observer),
        caller_(caller),
        workload_(load.workload, load.run),
        arrivals_(std::max(load.pattern.rate, 1e-9), load.pattern.burstiness,
                  static_cast<uint64_t>(load.workload.seed), load.run + kArrivalStream) {}

  LoadTotals Run() {
    const double cpu = ThreadCpuSeconds();
    start_ = Clock::now();
    if (load_.pattern.concurrency > 0) {
      for (int32_t i = 0; i < load_.pattern.concurrency; ++i) BeginConversation(Now());
    } else {
      ScheduleArrival(0);
      KeepOpen();
    }
    Tick();
    StopWhenDone();
    caller_.Run();
    const double seconds = Now();
    observer_.go_on({.seconds = seconds, .running = running_});
    return {.cancelled = running_, .seconds = seconds, .cpu_seconds = ThreadCpuSeconds() - cpu};
  }

 private:
  struct PendingRequest {
    std::shared_ptr<Session> session;
    RequestRecord record;
    HttpCall call;
  };

  double Now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool open_loop() const { return load_.pattern.concurrency == 0; }
  // Whether a request may begin at this time.
  bool IsTimeLeft(double at) const {
    return load_.duration_seconds == 0 || at < load_.duration_seconds;
  }

  void Tick();
  void StopWhenDone();
  std::optional<ConversationSpec> NextConversation(double intended);
  void ScheduleArrival(double intended);
  void KeepOpen();
  void BeginConversation(double intended);
  void Schedule(std::shared_ptr<Session> session, double intended, bool is_arrival);
  PendingRequest BuildRequest(std::shared_ptr<Session> session, double intended);
  void Send(PendingRequest pending);
  void Ended(const std::shared_ptr<Session>& session, const RequestRecord& record,
             std::string text);

  const LoadSpec& load_;
  const LoadObserver& observer_;
  HttpCaller& caller_;
  const Workload workload_;
  Arrivals arrivals_;
  Clock::time_point start_;
  int64_t conversations_ = 0;
  int64_t turns_ = 0;      // of all conversations so far, including future turns
  int64_t running_ = 0;    // requests in flight
  int64_t scheduled_ = 0;  // requests waiting for their time
};

void Generator::Tick() {
  if (!observer_.go_on({.seconds = Now(), .running = running_})) {
    caller_.Stop();
    return;
  }
  caller_.After(kTickSeconds, [this] { Tick(); });
}

void Generator::StopWhenDone() {
  if (running_ == 0 && scheduled_ == 0) caller_.Stop();
}

std::optional<ConversationSpec> Generator::NextConversation(double intended) {
  const int64_t left = load_.requests == 0 ? INT64_MAX : load_.requests - turns_;
  if (left == 0 || !IsTimeLeft(intended)) return std::nullopt;
  const int64_t id = conversations_++;
  const auto* list = load_.pattern.replayed;
  if (list != nullptr && id >= static_cast<int64_t>(list->size())) return std::nullopt;
  ConversationSpec spec =
      list == nullptr ? workload_.Make(id) : workload_.Make(id, (*list)[static_cast<size_t>(id)]);
  if (static_cast<int64_t>(spec.turns.size()) > left) spec.turns.resize(static_cast<size_t>(left));
  turns_ += static_cast<int64_t>(spec.turns.size());
  return spec;
}

// Open loop: schedules one arrival at a time and builds its request early.
void Generator::ScheduleArrival(double intended) {
  const auto* replayed = load_.pattern.replayed;
  if (replayed != nullptr && conversations_ < static_cast<int64_t>(replayed->size())) {
    intended = (*replayed)[static_cast<size_t>(conversations_)].time;
  }
  std::optional<ConversationSpec> spec = NextConversation(intended);
  if (!spec) return;
  auto session = std::make_shared<Session>(Session{std::move(*spec), 0, {}});
  Schedule(std::move(session), intended, /*is_arrival=*/true);
}

// Keeps running until the duration ends, even if no more requests arrive.
void Generator::KeepOpen() {
  if (load_.duration_seconds == 0 || load_.requests > 0 || load_.pattern.replayed != nullptr)
    return;
  ++scheduled_;
  caller_.After(load_.duration_seconds, [this] {
    --scheduled_;
    StopWhenDone();
  });
}

// Closed loop: starts the next conversation at once.
void Generator::BeginConversation(double intended) {
  std::optional<ConversationSpec> spec = NextConversation(intended);
  if (!spec) return;
  Send(BuildRequest(std::make_shared<Session>(Session{std::move(*spec), 0, {}}), intended));
}

// Sends the session's next turn when its time has come. After an arrival, schedules the next one.
void Generator::Schedule(std::shared_ptr<Session> session, double intended, bool is_arrival) {
  ++scheduled_;
  auto pending = std::make_shared<PendingRequest>(BuildRequest(std::move(session), intended));
  caller_.After(intended - Now(), [this, pending, intended, is_arrival] {
    --scheduled_;
    Send(std::move(*pending));
    if (is_arrival) ScheduleArrival(intended + arrivals_.NextGap());
  });
}

Generator::PendingRequest Generator::BuildRequest(std::shared_ptr<Session> session,
                                                  double intended) {
  TurnSpec& turn = session->spec.turns[session->next_turn];
  session->messages.emplace_back("user", std::move(turn.text));
  PendingRequest pending;
  pending.record.conversation = session->spec.id;
  pending.record.turn = static_cast<int32_t>(session->next_turn);
  pending.record.input_words = turn.input_words;
  pending.record.output_asked = turn.output_tokens;
  pending.record.intended = intended;
  pending.call.target = load_.shape.chat ? "/v1/chat/completions" : "/v1/completions";
  pending.call.body = RequestBody(load_.shape, session->messages, turn.output_tokens);
  pending.call.limit_seconds = load_.request_seconds;
  AddKey(&pending.call, load_.api_key);
  ++session->next_turn;
  pending.session = std::move(session);
  return pending;
}

void Generator::Send(PendingRequest pending) {
  ++running_;
  const bool last = pending.session->next_turn == pending.session->spec.turns.size();
  pending.record.sent = Now();
  auto on_done = [this, session = pending.session](const RequestRecord& record, std::string text) {
    Ended(session, record, std::move(text));
  };
  caller_.Send(std::move(pending.call),
               std::make_shared<RequestReceiver>(start_, std::move(pending.record),
                                                 /*keep_text=*/!last, std::move(on_done)));
}

void Generator::Ended(const std::shared_ptr<Session>& session, const RequestRecord& record,
                      std::string text) {
  --running_;
  const bool last = session->next_turn == session->spec.turns.size();
  const double end = record.end;
  const bool ok = record.ok();
  const bool connected = record.error_kind != "connect";
  observer_.on_record(record);
  if (!ok) turns_ -= static_cast<int64_t>(session->spec.turns.size() - session->next_turn);
  if (ok && !last) {
    const double intended = end + session->spec.turns[session->next_turn].think_seconds;
    session->messages.emplace_back("assistant", std::move(text));
    if (IsTimeLeft(intended)) Schedule(session, intended, /*is_arrival=*/false);
  } else if (!open_loop() && !connected) {
    // Waits: otherwise an unreachable server would be retried at full speed.
    ++scheduled_;
    caller_.After(kRetrySeconds, [this] {
      --scheduled_;
      BeginConversation(Now());
      StopWhenDone();
    });
  } else if (!open_loop()) {
    BeginConversation(Now());
  }
  StopWhenDone();
}

}  // namespace

Result<LoadTotals> RunLoad(const LoadSpec& load, const LoadObserver& observer) {
  AllowManySockets();
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpCaller> caller,
                   HttpCaller::Create(load.url, load.connection));
  return Generator(load, observer, *caller).Run();
}

}  // namespace tokamak::loadgen
