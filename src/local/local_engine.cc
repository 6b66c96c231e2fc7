#include "local/local_engine.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/random_bits.h"
#include "images/placeholders.h"
#include "local/bad_words.h"
#include "local/merge_replicas.h"
#include "local/text_decoder.h"

namespace tokamak {
Result<std::unique_ptr<Engine>> LocalEngine::Create(EngineParts parts) {
  std::unique_ptr<LocalEngine> engine(new LocalEngine(std::move(parts)));
  RETURN_IF_ERROR(engine->Start());
  return std::unique_ptr<Engine>(std::move(engine));
}

LocalEngine::LocalEngine(EngineParts parts)
    : parts_(std::move(parts)),
      constraints_(std::make_unique<ConstraintMaker>(parts_.constraint_tokens)),
      dry_breakers_(std::make_unique<DryBreakerEncoder>(parts_.tokenizer)),
      open_(parts_.core.max_queue),
      router_({.num_replicas = static_cast<int32_t>(parts_.replicas.size()),
               .cache_blocks = parts_.replicas[0].executor->limits().cache.num_device_blocks}),
      drained_(parts_.replicas.size()) {}

LocalEngine::~LocalEngine() {
  if (!replicas_.empty()) Drain(0);
}

Status LocalEngine::Start() {
  for (ReplicaParts& parts : parts_.replicas) {
    const auto index = static_cast<int32_t>(replicas_.size());
    ASSIGN_OR_RETURN(
        auto replica,
        Replica::Create(
            std::move(parts), parts_.core, std::exchange(parts_.measure_read_gb_s, nullptr),
            [this, index](const std::vector<RequestEnd>& ended) { CountEnded(index, ended); }));
    replicas_.push_back(std::move(replica));
  }
  return Status();
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
  const auto usable =
      std::ranges::find_if(replicas_, [](const auto& replica) { return replica->health().ok(); });
  // All have the same limits. If all have failed, any of them says so.
  RETURN_IF_ERROR((usable == replicas_.end() ? replicas_.front() : *usable)->Check(arrival));
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
  std::vector<uint64_t> prefixes;
  if (replicas_.size() > 1 && parts_.core.prefix_cache) {
    prefixes = HashPrefixes(arrival.cache_root, EngineCore::PromptContent(arrival),
                            parts_.options.block_size);
  }
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
  // If all are starting their workers again, requests wait for that.
  std::vector<bool> usable, ready;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    usable.push_back(!drained_[i] && replicas_[i]->health().ok());
    ready.push_back(usable[i] && !replicas_[i]->restarting());
  }
  const bool any_ready = std::ranges::find(ready, true) != ready.end();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    router_.SetTakesRequests(static_cast<int32_t>(i), any_ready ? ready[i] : usable[i]);
  }
  const int32_t chosen = router_.Choose(prefixes, arrival.priority);
  if (chosen < 0) return Unavailable("no replica takes requests");
  const RequestId id = next_id_++ * replicas_.size() + static_cast<RequestId>(chosen);
  arrival.id = id;
  open_.Take(arrival.client);
  // Under the lock, to keep the order of Take.
  replicas_[static_cast<size_t>(chosen)]->Push(std::move(arrival));
  return id;
}

void LocalEngine::CountEnded(int32_t replica, const std::vector<RequestEnd>& ended) {
  MutexLock lock(mutex_);
  for (const RequestEnd& end : ended) {
    open_.Give(end.client);
    router_.End(replica, end.priority);
  }
  if (open_.total() == 0) all_done_.NotifyAll();
}

void LocalEngine::Cancel(RequestId request) { ReplicaOf(request).Push(CancelMessage{request}); }
void LocalEngine::Pause(RequestId request) { ReplicaOf(request).Push(PauseMessage{request}); }
void LocalEngine::Resume(RequestId request) { ReplicaOf(request).Push(ResumeMessage{request}); }

Status LocalEngine::health() const {
  Status first;
  for (const auto& replica : replicas_) {
    Status health = replica->health();
    if (health.ok()) return health;
    if (first.ok()) first = std::move(health);
  }
  return first;
}

bool LocalEngine::Working(int32_t replica) const {
  MutexLock lock(mutex_);
  return router_.num_open(replica) > 0;
}

std::vector<EngineStats> LocalEngine::replica_stats() const {
  std::vector<EngineStats> stats;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    stats.push_back(replicas_[i]->stats(Working(static_cast<int32_t>(i))));
  }
  return stats;
}

EngineStats LocalEngine::stats() const { return Sum(replica_stats()); }

void LocalEngine::Snapshot(SnapshotCallback on_snapshot) {
  if (replicas_.size() == 1) {
    return replicas_[0]->Push(SnapshotMessage{std::move(on_snapshot)});
  }
  // Collects them all; the last replica's engine thread calls back.
  struct Collected {
    Mutex mutex;
    std::vector<std::shared_ptr<const EngineSnapshot>> snapshots GUARDED_BY(mutex);
    size_t missing GUARDED_BY(mutex) = 0;
  };
  const auto collected = std::make_shared<Collected>();
  {
    MutexLock lock(collected->mutex);
    collected->snapshots.resize(replicas_.size());
    collected->missing = replicas_.size();
  }
  const auto callback = std::make_shared<SnapshotCallback>(std::move(on_snapshot));
  for (size_t i = 0; i < replicas_.size(); ++i) {
    replicas_[i]->Push(SnapshotMessage{[collected, callback, i](auto snapshot) {
      std::shared_ptr<const EngineSnapshot> all;
      {
        MutexLock lock(collected->mutex);
        collected->snapshots[i] = std::move(snapshot);
        if (--collected->missing > 0) return;
        all = std::make_shared<EngineSnapshot>(Merge(collected->snapshots));
      }
      (*callback)(std::move(all));
    }});
  }
}

Status LocalEngine::DrainReplica(int32_t replica, bool drain) {
  MutexLock lock(mutex_);
  const auto index = static_cast<size_t>(replica);
  if (replica < 0 || index >= drained_.size()) {
    return InvalidArgument("replica: must be in [0, {}), got {}", drained_.size(), replica);
  }
  drained_[index] = drain;
  return Status();
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
    // Repeats, because an arrival accepted before the drain may still be in a mailbox.
    for (const auto& replica : replicas_) replica->Push(CancelAllMessage{});
    all_done_.WaitFor(mutex_, std::chrono::milliseconds(50));
  }
}

}  // namespace tokamak
