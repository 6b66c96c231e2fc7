// Replica: an engine thread around an EngineCore. With data parallelism an engine has several, each
// with its own scheduler, blocks and prefix cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "engine/engine_core.h"
#include "engine/mailbox.h"
#include "engine/record.h"
#include "executor/executor.h"
#include "local/idle_measurement.h"

namespace tokamak {

// A request that has ended.
struct RequestEnd {
  std::string client;
  int32_t priority = 0;
};

struct ReplicaParts {
  // The compute pool, which the executor may use. Its owner is the thread that loads, then the
  // engine thread.
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<RecordWriter> record;  // null: no recording
};

// The engine thread owns core_ and through it the executor; other threads reach it through the
// mailbox.
class Replica {
 public:
  // `measure_read_gb_s`: as in EngineParts. `on_ended` is called on the engine thread, after the
  // step in which the requests ended.
  static Result<std::unique_ptr<Replica>> Create(
      ReplicaParts parts, EngineCoreOptions core,
      std::function<std::optional<double>()> measure_read_gb_s,
      std::function<void(std::vector<RequestEnd>)> on_ended);
  // Requires that all requests have ended.
  ~Replica();

  // Any thread. An arrival must have passed Check of a replica of the same engine.
  void Push(EngineMessage message) { mailbox_.Push(std::move(message)); }
  // The methods of EngineCore that are thread-safe.
  Status Check(const Arrival& arrival) const { return core_->Check(arrival); }
  Status health() const { return core_->health(); }
  bool restarting() const { return core_->restarting(); }
  // `working`: there are requests that have not ended.
  EngineStats stats(bool working) const EXCLUDES(mutex_);

 private:
  Replica(ReplicaParts parts, std::function<void(std::vector<RequestEnd>)> on_ended);
  Status Start(EngineCoreOptions options, std::function<std::optional<double>()> measure_read_gb_s);
  void Run();  // the engine thread's function
  void Sleep() EXCLUDES(mutex_);
  void Take(EngineMessage message);
  void Accept(Arrival arrival);
  void Record(const RecordEvent& event);
  void GiveSnapshots();
  // Adds what the core does not know.
  void AddTo(EngineStats& stats) const;

  ReplicaParts parts_;
  const std::function<void(std::vector<RequestEnd>)> on_ended_;
  SystemClock clock_;
  // Wrap the core's clock and executor if parts_.record is set.
  std::unique_ptr<RecordingClock> recording_clock_;
  std::unique_ptr<RecordingExecutor> recording_executor_;
  std::unique_ptr<EngineCore> core_;  // engine thread, except for thread-safe methods
  // Engine thread: what ended since the last call of on_ended_.
  std::vector<RequestEnd> ended_;
  // Engine thread: callbacks that wait for a snapshot, and the latest snapshot.
  std::vector<SnapshotCallback> watchers_;
  std::shared_ptr<const EngineSnapshot> snapshot_;
  TimePoint snapshot_time_{};
  std::unique_ptr<IdleMeasurement> read_gb_s_;
  std::atomic<int64_t> refused_{0};  // accepted by the engine, then refused by the core
  EngineMailbox mailbox_;
  std::atomic<bool> stop_{false};

  mutable Mutex mutex_;
  std::optional<TimePoint> awake_since_ GUARDED_BY(mutex_);  // nullopt while asleep

  std::thread thread_;
};

}  // namespace tokamak
