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
#include "local/idle_measurement.h"
#include "tokamak/engine.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// The parts that Engine::Load assembles.
struct EngineParts {
  EngineOptions options;  // with "auto" and 0 replaced by actual values
  ModelInfo model;
  std::string system_fingerprint;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the checkpoint has none, accepts only ids
  std::unique_ptr<Executor> executor;
  EngineCoreOptions core;
  std::unique_ptr<RecordWriter> record;   // null: no recording
  std::function<Profile()> take_profile;  // empty: profiling is off
  // Measures memory bandwidth in GB/s; uses all cores for a while. May be empty.
  std::function<std::optional<double>()> measure_read_gb_s;
};

// The engine thread owns core_ and through it the executor; other threads reach it through the
// mailbox. Text is tokenized on the caller's thread.
class LocalEngine final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(EngineParts parts);
  // Cancels running requests.
  ~LocalEngine() override;

  Result<RequestId> Submit(Request request, OutputCallback on_output) override;
  void Cancel(RequestId request) override;
  void Pause(RequestId request) override;
  void Resume(RequestId request) override;
  Result<std::vector<OutputChunk>> Generate(Request request) override;
  // Return kUnimplemented.
  Result<RequestId> SubmitEmbedding(EmbeddingRequest request, EmbeddingCallback on_output) override;
  Result<EmbeddingOutput> Embed(EmbeddingRequest request) override;
  Result<EmbeddingRequest> TokenizeEmbedding(EmbeddingRequest request) const override;
  size_t LeastTokens(std::string_view text) const override {
    return parts_.tokenizer == nullptr ? 0 : parts_.tokenizer->LeastTokens(text);
  }
  Result<std::vector<int32_t>> Tokenize(std::string_view text, bool add_special,
                                        bool parse_special) const override;
  std::string Detokenize(const std::vector<int32_t>& ids) const override;
  std::string TokenBytes(int32_t id) const override;
  const ModelInfo& model() const override { return parts_.model; }
  EngineStats stats() const override EXCLUDES(mutex_);
  void Snapshot(SnapshotCallback on_snapshot) override;
  Profile TakeProfile() override { return parts_.take_profile ? parts_.take_profile() : Profile(); }
  Status health() const override { return core_->health(); }
  const std::string& system_fingerprint() const override { return parts_.system_fingerprint; }
  void Drain(double timeout_seconds) override EXCLUDES(mutex_);

 private:
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
