#include "local/replica.h"

#include <chrono>
#include <utility>

#include "base/error.h"

namespace tokamak {
namespace {

constexpr std::chrono::milliseconds kSnapshotPeriod(100);

}  // namespace

Result<std::unique_ptr<Replica>> Replica::Create(
    ReplicaParts parts, EngineCoreOptions core,
    std::function<std::optional<double>()> measure_read_gb_s,
    std::function<void(std::vector<RequestEnd>)> on_ended) {
  std::unique_ptr<Replica> replica(new Replica(std::move(parts), std::move(on_ended)));
  RETURN_IF_ERROR(replica->Start(std::move(core), std::move(measure_read_gb_s)));
  return replica;
}

Replica::Replica(ReplicaParts parts, std::function<void(std::vector<RequestEnd>)> on_ended)
    : parts_(std::move(parts)), on_ended_(std::move(on_ended)) {}

Replica::~Replica() {
  parts_.executor->OnLost({});
  if (!thread_.joinable()) return;
  stop_.store(true);
  mailbox_.Push(WakeMessage{});
  thread_.join();
}

Status Replica::Start(EngineCoreOptions options,
                      std::function<std::optional<double>()> measure_read_gb_s) {
  options.on_request_done = [this](const RequestState& request) {
    ended_.push_back({request.client, request.priority});
  };
  Clock* clock = &clock_;
  Executor* executor = parts_.executor.get();
  if (parts_.record != nullptr) {
    recording_clock_ = std::make_unique<RecordingClock>(clock, parts_.record.get());
    recording_executor_ = std::make_unique<RecordingExecutor>(executor, parts_.record.get());
    clock = recording_clock_.get();
    executor = recording_executor_.get();
  }
  ASSIGN_OR_RETURN(core_,
                   EngineCore::Create(std::move(options), clock, executor, parts_.pool.get()));
  read_gb_s_ = std::make_unique<IdleMeasurement>(
      std::move(measure_read_gb_s), [this] { return core_->stats(TimePoint{}).steps; });
  {
    MutexLock lock(mutex_);
    awake_since_ = std::chrono::steady_clock::now();
  }
  executor->OnLost([this] { mailbox_.Push(LostMessage{}); });
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void Replica::Run() {
  while (!stop_.load()) {
    for (EngineMessage& message : mailbox_.Take()) Take(std::move(message));
    if (core_->HasWork()) {
      Record(StepEvent{});
      core_->Step();
    }
    // Flush now: the process may end or fail as soon as its last request has ended.
    const bool flush = !ended_.empty() || !core_->HasWork();
    if (parts_.record != nullptr && flush) (void)parts_.record->Flush();
    // After the step in which requests ended, so that a waiting caller sees its statistics.
    if (!ended_.empty()) on_ended_(std::exchange(ended_, {}));
    GiveSnapshots();
    if (!core_->HasWork() && !stop_.load()) Sleep();
  }
}

void Replica::Sleep() {
  {
    MutexLock lock(mutex_);
    awake_since_.reset();
  }
  mailbox_.WaitForWork();
  MutexLock lock(mutex_);
  awake_since_ = std::chrono::steady_clock::now();
}

void Replica::Record(const RecordEvent& event) {
  if (parts_.record != nullptr) parts_.record->Write(event);
}

void Replica::Accept(Arrival arrival) {
  const RequestId id = arrival.id;
  const int32_t n = arrival.sampling.n;
  RequestEnd end = {arrival.client, arrival.priority};
  const OutputCallback on_output = arrival.on_output;
  if (parts_.record != nullptr) parts_.record->WriteArrival(arrival);
  const Status status = core_->SubmitChecked(std::move(arrival));
  if (status.ok()) return;
  // The engine accepted it, so it must end like any other.
  for (int32_t choice = 0; choice < n; ++choice) {
    OutputChunk chunk;
    chunk.request = id;
    chunk.choice = choice;
    chunk.finish_reason = FinishReason::kError;
    chunk.error = status;
    on_output(std::move(chunk));
  }
  ended_.push_back(std::move(end));
  ++refused_;
}

void Replica::Take(EngineMessage message) {
  if (auto* arrival = std::get_if<Arrival>(&message)) {
    Accept(std::move(*arrival));
  } else if (const auto* cancel = std::get_if<CancelMessage>(&message)) {
    Record(CancelEvent{cancel->request});
    core_->Cancel(cancel->request);
  } else if (std::holds_alternative<CancelAllMessage>(message)) {
    Record(CancelAllEvent{});
    core_->CancelAll();
  } else if (const auto* pause = std::get_if<PauseMessage>(&message)) {
    Record(PauseEvent{pause->request});
    core_->Pause(pause->request);
  } else if (const auto* resume = std::get_if<ResumeMessage>(&message)) {
    Record(ResumeEvent{resume->request});
    core_->Resume(resume->request);
  } else if (std::holds_alternative<LostMessage>(message)) {
    const Status error = parts_.executor->Lost();
    if (error.ok()) return;  // it has started again
    Record(LostEvent{error});
    core_->LoseExecutor(error);
  } else if (auto* watch = std::get_if<SnapshotMessage>(&message)) {
    watchers_.push_back(std::move(watch->on_snapshot));
  }
}

EngineStats Replica::stats(bool working) const {
  std::optional<TimePoint> waiting_since;
  if (working) {
    MutexLock lock(mutex_);
    waiting_since = awake_since_;
  }
  EngineStats stats = core_->stats(std::chrono::steady_clock::now(), waiting_since);
  AddTo(stats);
  return stats;
}

void Replica::AddTo(EngineStats& stats) const {
  stats.ended_requests[static_cast<size_t>(FinishReason::kError)] += refused_;
  stats.ranks = parts_.executor->rank_stats();
}

// Uses the system's time, not the core's clock, so that snapshots do not change a recorded run.
void Replica::GiveSnapshots() {
  if (watchers_.empty()) return;
  const bool idle = !core_->HasWork();
  const TimePoint now = std::chrono::steady_clock::now();
  if (snapshot_ == nullptr || now - snapshot_time_ >= kSnapshotPeriod) {
    const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
    auto snapshot = std::make_shared<EngineSnapshot>(
        core_->Snapshot(now, std::chrono::duration<double>(unix_now).count()));
    AddTo(snapshot->stats);
    snapshot->read_gb_s = read_gb_s_->Get(idle);
    snapshot_ = std::move(snapshot);
    snapshot_time_ = now;
  }
  for (const SnapshotCallback& watcher : std::exchange(watchers_, {})) watcher(snapshot_);
}

}  // namespace tokamak
