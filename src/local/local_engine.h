// The Engine of this process: the processing of requests before and after the replicas that run
// them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "engine/client_shares.h"
#include "local/dry_breakers.h"
#include "local/image_input.h"
#include "local/loaded_engine.h"
#include "local/replica.h"
#include "local/replica_router.h"
#include "local/structured_output.h"
#include "tokamak/engine.h"

namespace tokamak {

// The parts that Engine::Load assembles.
struct EngineParts : LoadedParts {
  EngineCoreOptions core;
  std::shared_ptr<const ConstraintTokens> constraint_tokens;  // null without a tokenizer
  std::unique_ptr<const ImageInput> images;                   // null: the model takes only text
  // Measures memory bandwidth in GB/s; uses all cores for a while. May be empty.
  std::function<std::optional<double>()> measure_read_gb_s;
  std::vector<ReplicaParts> replicas;  // at least one
};

// Checks requests and gives each to a replica. Text is tokenized, and images are prepared, on the
// caller's thread.
class LocalEngine final : public LoadedEngine<Engine> {
 public:
  static Result<std::unique_ptr<Engine>> Create(EngineParts parts);
  // Cancels running requests.
  ~LocalEngine() override;

  Result<RequestId> Submit(Request request, OutputCallback on_output) override;
  void Cancel(RequestId request) override;
  void Pause(RequestId request) override;
  void Resume(RequestId request) override;
  Status PrepareStructuredOutput(const StructuredOutput& output) const override {
    return constraints_->Prepare(output);
  }
  Result<ImageData> PrepareImage(std::string_view bytes,
                                 const ImageOptions& options) const override;
  EngineStats stats() const override EXCLUDES(mutex_);
  std::vector<EngineStats> replica_stats() const override EXCLUDES(mutex_);
  void Snapshot(SnapshotCallback on_snapshot) override;
  Status health() const override;
  void Drain(double timeout_seconds) override EXCLUDES(mutex_);
  Status DrainReplica(int32_t replica, bool drain) override EXCLUDES(mutex_);

 private:
  const LoadedParts& parts() const override { return parts_; }
  explicit LocalEngine(EngineParts parts);
  Status Start();

  // Refuses what can never run. The engine does not check a request again.
  Result<Arrival> MakeArrival(Request request) const;
  Result<RequestId> Accept(Arrival arrival, OutputCallback on_output) EXCLUDES(mutex_);
  // Requests of a replica have ended.
  void CountEnded(int32_t replica, const std::vector<RequestEnd>& ended) EXCLUDES(mutex_);
  // The id names the replica that has the request.
  Replica& ReplicaOf(RequestId request) { return *replicas_[request % replicas_.size()]; }
  bool Working(int32_t replica) const EXCLUDES(mutex_);

  EngineParts parts_;
  const std::unique_ptr<ConstraintMaker> constraints_;
  const std::unique_ptr<DryBreakerEncoder> dry_breakers_;

  mutable Mutex mutex_;
  CondVar all_done_;
  // Accepted requests that have not ended, paused ones included.
  ClientShares open_ GUARDED_BY(mutex_);
  ReplicaRouter router_ GUARDED_BY(mutex_);
  std::vector<bool> drained_ GUARDED_BY(mutex_);  // per replica: DrainReplica
  RequestId next_id_ GUARDED_BY(mutex_) = 1;
  bool draining_ GUARDED_BY(mutex_) = false;

  std::vector<std::unique_ptr<Replica>> replicas_;
};

}  // namespace tokamak
