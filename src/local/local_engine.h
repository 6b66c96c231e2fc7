// The Engine of this process: an engine thread around EngineCore, and the processing of requests
// before and after it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine_core.h"
#include "engine/mailbox.h"
#include "engine/record.h"
#include "executor/executor.h"
#include "local/dry_breakers.h"
#include "local/idle_measurement.h"
#include "local/image_input.h"
#include "local/loaded_engine.h"
#include "local/structured_output.h"
#include "tokamak/engine.h"

namespace tokamak {

// The parts that Engine::Load assembles.
struct EngineParts : LoadedParts {
  std::unique_ptr<Executor> executor;
  EngineCoreOptions core;
  std::shared_ptr<const ConstraintTokens> constraint_tokens;  // null without a tokenizer
  std::unique_ptr<const ImageInput> images;                   // null: the model takes only text
  std::unique_ptr<RecordWriter> record;                       // null: no recording
  // Measures memory bandwidth in GB/s; uses all cores for a while. May be empty.
  std::function<std::optional<double>()> measure_read_gb_s;
};

// The engine thread owns core_ and through it the executor; other threads reach it through the
// mailbox. Text is tokenized, and images are prepared, on the caller's thread.
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
  void Snapshot(SnapshotCallback on_snapshot) override;
  Status health() const override { return core_->health(); }
  void Drain(double timeout_seconds) override EXCLUDES(mutex_);

 private:
  const LoadedParts& parts() const override { return parts_; }
  explicit LocalEngine(EngineParts parts);
  Status Start();
  void Run();  // the engine thread's function
  void Sleep() EXCLUDES(mutex_);
  void Take(EngineMessage message);
  void Record(const RecordEvent& event);
  void GiveSnapshots();

  // Refuses what can never run. The engine does not check a request again.
  Result<Arrival> MakeArrival(Request request) const;
  Result<RequestId> Accept(Arrival arrival, OutputCallback on_output) EXCLUDES(mutex_);
  void CountEnded() EXCLUDES(mutex_);

  EngineParts parts_;
  const std::unique_ptr<ConstraintMaker> constraints_;
  const std::unique_ptr<DryBreakerEncoder> dry_breakers_;
  SystemClock clock_;
  // Wrap the core's clock and executor if parts_.record is set.
  std::unique_ptr<RecordingClock> recording_clock_;
  std::unique_ptr<RecordingExecutor> recording_executor_;
  std::unique_ptr<EngineCore> core_;  // engine thread, except for thread-safe methods
  // Engine thread: clients of requests that ended since the last CountEnded.
  std::vector<std::string> ended_;
  // Engine thread: callbacks that wait for a snapshot, and the latest snapshot.
  std::vector<SnapshotCallback> watchers_;
  std::shared_ptr<const EngineSnapshot> snapshot_;
  TimePoint snapshot_time_{};
  std::unique_ptr<IdleMeasurement> read_gb_s_;
  std::atomic<int64_t> refused_{0};  // accepted here, then refused by the core
  EngineMailbox mailbox_;
  std::atomic<RequestId> next_id_{1};
  std::atomic<bool> stop_{false};

  mutable Mutex mutex_;
  CondVar all_done_;
  // Accepted requests that have not ended, paused ones included.
  ClientShares open_ GUARDED_BY(mutex_);
  bool draining_ GUARDED_BY(mutex_) = false;
  std::optional<TimePoint> awake_since_ GUARDED_BY(mutex_);  // nullopt while asleep

  std::thread thread_;
};

}  // namespace tokamak
