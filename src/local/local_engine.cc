#include "local/local_engine.h"

#include <chrono>

#include "base/error.h"
#include "base/random_bits.h"
#include "images/placeholders.h"
#include "local/bad_words.h"
#include "local/text_decoder.h"

namespace tokamak {
namespace {

constexpr std::chrono::milliseconds kSnapshotPeriod(100);

}  // namespace

Result<std::unique_ptr<Engine>> LocalEngine::Create(EngineParts parts) {
  std::unique_ptr<LocalEngine> engine(new LocalEngine(std::move(parts)));
  RETURN_IF_ERROR(engine->Start());
  return std::unique_ptr<Engine>(std::move(engine));
}

LocalEngine::LocalEngine(EngineParts parts)
    : parts_(std::move(parts)),
      constraints_(std::make_unique<ConstraintMaker>(parts_.constraint_tokens)),
      dry_breakers_(std::make_unique<DryBreakerEncoder>(parts_.tokenizer)),
      open_(parts_.core.max_queue) {}

LocalEngine::~LocalEngine() {
  if (!thread_.joinable()) return;
  Drain(0);
  stop_.store(true);
  mailbox_.Push(WakeMessage{});
  thread_.join();
}

Status LocalEngine::Start() {
  parts_.core.on_request_done = [this](const RequestState& request) {
    ended_.push_back(request.client);
  };
  Clock* clock = &clock_;
  Executor* executor = parts_.executor.get();
  if (parts_.record != nullptr) {
    recording_clock_ = std::make_unique<RecordingClock>(clock, parts_.record.get());
    recording_executor_ = std::make_unique<RecordingExecutor>(executor, parts_.record.get());
    clock = recording_clock_.get();
    executor = recording_executor_.get();
  }
  ASSIGN_OR_RETURN(core_, EngineCore::Create(parts_.core, clock, executor, parts_.pool.get()));
  read_gb_s_ = std::make_unique<IdleMeasurement>(
      parts_.measure_read_gb_s, [this] { return core_->stats(TimePoint{}).steps; });
  {
    MutexLock lock(mutex_);
    awake_since_ = std::chrono::steady_clock::now();
  }
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void LocalEngine::Run() {
  while (!stop_.load()) {
    for (EngineMessage& message : mailbox_.Take()) Take(std::move(message));
    if (core_->HasWork()) {
      Record(StepEvent{});
      core_->Step();
    }
    // Flush now: the process may end or fail as soon as its last request has ended.
    const bool flush = !ended_.empty() || !core_->HasWork();
    if (parts_.record != nullptr && flush) (void)parts_.record->Flush();
    CountEnded();
    GiveSnapshots();
    if (!core_->HasWork() && !stop_.load()) Sleep();
  }
}

void LocalEngine::Sleep() {
  {
    MutexLock lock(mutex_);
    awake_since_.reset();
  }
  mailbox_.WaitForWork();
  MutexLock lock(mutex_);
  awake_since_ = std::chrono::steady_clock::now();
}

void LocalEngine::Record(const RecordEvent& event) {
  if (parts_.record != nullptr) parts_.record->Write(event);
}

void LocalEngine::Take(EngineMessage message) {
  if (auto* arrival = std::get_if<Arrival>(&message)) {
    const RequestId id = arrival->id;
    const int32_t n = arrival->sampling.n;
    const std::string client = arrival->client;
    const OutputCallback on_output = arrival->on_output;
    if (parts_.record != nullptr) parts_.record->WriteArrival(*arrival);
    const Status status = core_->SubmitChecked(std::move(*arrival));
    if (status.ok()) return;
    // It was accepted, so it must end like any other.
    for (int32_t choice = 0; choice < n; ++choice) {
      OutputChunk chunk;
      chunk.request = id;
      chunk.choice = choice;
      chunk.finish_reason = FinishReason::kError;
      chunk.error = status;
      on_output(std::move(chunk));
    }
    ended_.push_back(client);
    ++refused_;
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
  } else if (auto* watch = std::get_if<SnapshotMessage>(&message)) {
    watchers_.push_back(std::move(watch->on_snapshot));
  }
}

Result<ImageData> LocalEngine::PrepareImage(std::string_view bytes,
                                            const ImageOptions& options) const {
  if (!parts_.images) return InvalidArgument("this model takes only text, no images");
  return parts_.images->Prepare(bytes, options);
}

Result<Arrival> LocalEngine::MakeArrival(Request request) const {
  Arrival arrival;
  if (request.prompt && !request.token_ids.empty()) {
    return InvalidArgument("prompt: give either text or token ids, not both");
  }
  if (!request.images.empty() && !parts_.images) {
    return InvalidArgument("images: this model takes only text, got {} images",
                           request.images.size());
  }
  if (request.prompt) {
    if (!request.images.empty()) {
      request.prompt = WriteOutPlaceholders(*parts_.model.images, *std::move(request.prompt));
    }
    ASSIGN_OR_RETURN(arrival.prompt, Tokenize(*request.prompt, request.add_special_tokens,
                                              request.parse_special_tokens));
  } else {
    arrival.prompt = std::move(request.token_ids);
  }
  if (arrival.prompt.empty()) return InvalidArgument("prompt: must hold at least one token");
  if (!request.images.empty()) {
    ASSIGN_OR_RETURN(arrival.images,
                     parts_.images->Place(request.images, request.cache_salt, arrival.prompt));
  }
  arrival.sampling = std::move(request.sampling);
  const ModelInfo& model = parts_.model;
  RETURN_IF_ERROR(Validate(arrival.sampling, model.vocab_size, model.max_logprobs));
  if (!arrival.sampling.bad_words.empty()) {
    RETURN_IF_ERROR(EncodeBadWords(parts_.tokenizer.get(), &arrival.sampling));
  }
  RETURN_IF_ERROR(dry_breakers_->Encode(&arrival.sampling));
  if (!arrival.sampling.seed) arrival.sampling.seed = RandomSeed();
  arrival.priority = request.priority;
  arrival.speculate = request.speculate;
  arrival.client = std::move(request.client);
  arrival.cache_root = std::move(request.cache_salt);
  arrival.label = std::move(request.label);
  if (parts_.tokenizer != nullptr) arrival.eos_ids = parts_.tokenizer->end_of_generation_ids();
  ASSIGN_OR_RETURN(arrival.constraints, constraints_->MakeFor(arrival.sampling));
  RETURN_IF_ERROR(core_->Check(arrival));
  if (parts_.tokenizer != nullptr) {
    for (int32_t choice = 0; choice < arrival.sampling.n; ++choice) {
      ASSIGN_OR_RETURN(auto decoder, MakeTextDecoder(parts_.tokenizer, arrival.sampling));
      arrival.decoders.push_back(std::move(decoder));
    }
  } else if (!arrival.sampling.stop.empty()) {
    return InvalidArgument(
        "stop: this model has no tokenizer, so it cannot find text; use stop_token_ids");
  }
  return arrival;
}

Result<RequestId> LocalEngine::Submit(Request request, OutputCallback on_output) {
  ASSIGN_OR_RETURN(Arrival arrival, MakeArrival(std::move(request)));
  return Accept(std::move(arrival), std::move(on_output));
}

Result<RequestId> LocalEngine::Accept(Arrival arrival, OutputCallback on_output) {
  const RequestId id = next_id_.fetch_add(1);
  arrival.id = id;
  arrival.on_output = std::move(on_output);
  arrival.submitted = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  if (draining_) return Unavailable("the engine is shutting down");
  if (!open_.MayTake(arrival.client)) {
    return Unavailable(
        "the queue is full: {} requests are running, waiting, or paused until their readers catch "
        "up (max_queue {})",
        open_.total(), parts_.options.max_queue);
  }
  open_.Take(arrival.client);
  mailbox_.Push(std::move(arrival));  // under the lock, to keep the order of Take
  return id;
}

// Runs after the step in which requests ended, so that a waiting caller sees its statistics.
void LocalEngine::CountEnded() {
  if (ended_.empty()) return;
  MutexLock lock(mutex_);
  for (const std::string& client : std::exchange(ended_, {})) open_.Give(client);
  if (open_.total() == 0) all_done_.NotifyAll();
}

void LocalEngine::Cancel(RequestId request) { mailbox_.Push(CancelMessage{request}); }
void LocalEngine::Pause(RequestId request) { mailbox_.Push(PauseMessage{request}); }
void LocalEngine::Resume(RequestId request) { mailbox_.Push(ResumeMessage{request}); }

EngineStats LocalEngine::stats() const {
  std::optional<TimePoint> waiting_since;
  {
    MutexLock lock(mutex_);
    if (open_.total() > 0) waiting_since = awake_since_;
  }
  EngineStats stats = core_->stats(std::chrono::steady_clock::now(), waiting_since);
  stats.ended_requests[static_cast<size_t>(FinishReason::kError)] += refused_;
  return stats;
}

void LocalEngine::Snapshot(SnapshotCallback on_snapshot) {
  mailbox_.Push(SnapshotMessage{std::move(on_snapshot)});
}

// Uses the system's time, not the core's clock, so that snapshots do not change a recorded run.
void LocalEngine::GiveSnapshots() {
  if (watchers_.empty()) return;
  const bool idle = !core_->HasWork();
  const TimePoint now = std::chrono::steady_clock::now();
  if (snapshot_ == nullptr || now - snapshot_time_ >= kSnapshotPeriod) {
    const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
    auto snapshot = std::make_shared<EngineSnapshot>(
        core_->Snapshot(now, std::chrono::duration<double>(unix_now).count()));
    snapshot->stats.ended_requests[static_cast<size_t>(FinishReason::kError)] += refused_;
    snapshot->read_gb_s = read_gb_s_->Get(idle);
    snapshot_ = std::move(snapshot);
    snapshot_time_ = now;
  }
  for (const SnapshotCallback& watcher : std::exchange(watchers_, {})) watcher(snapshot_);
}

void LocalEngine::Drain(double timeout_seconds) {
  MutexLock lock(mutex_);
  draining_ = true;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (open_.total() > 0) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    all_done_.WaitFor(mutex_, left);
  }
  while (open_.total() > 0) {
    // Repeats, because an arrival accepted before the drain may still be in the mailbox.
    mailbox_.Push(CancelAllMessage{});
    all_done_.WaitFor(mutex_, std::chrono::milliseconds(50));
  }
}

}  // namespace tokamak
