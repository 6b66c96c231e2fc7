// The Embedder of this process: a thread that runs batches of texts.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "local/loaded_engine.h"
#include "runner/embedding_runner.h"
#include "tokamak/embed.h"

namespace tokamak {

// The parts that Embedder::Load assembles.
struct EmbeddingParts : LoadedParts {
  // The compute pool. Its owner is the thread that loads, then the engine thread.
  std::unique_ptr<ThreadPool> pool;
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;  // a name in `prompts`, or empty
  std::unique_ptr<EmbeddingRunner> runner;
};

// The engine thread owns the runner, and a job while it is in a batch. Jobs take turns, one text at
// a time, so a job of few texts waits for few steps, whatever else is queued.
class EmbeddingEngine final : public LoadedEngine<Embedder> {
 public:
  explicit EmbeddingEngine(EmbeddingParts parts);
  ~EmbeddingEngine() override;

  Result<RequestId> Submit(EmbeddingRequest request, EmbeddingCallback on_output) override
      EXCLUDES(mutex_);
  Result<EmbeddingRequest> TokenizeInputs(EmbeddingRequest request) const override;
  void Cancel(RequestId request) override EXCLUDES(mutex_);
  EngineStats stats() const override EXCLUDES(mutex_);
  void Snapshot(SnapshotCallback on_snapshot) override EXCLUDES(mutex_);
  Status health() const override EXCLUDES(mutex_);
  void Drain(double timeout_seconds) override EXCLUDES(mutex_);

 private:
  const LoadedParts& parts() const override { return parts_; }
  struct Job {
    RequestId id = 0;
    EmbeddingRequest request;  // only token ids, no text
    EmbeddingCallback on_output;
    TimePoint submitted{};
    std::optional<TimePoint> started;
    size_t next = 0;  // first input not yet in a step
    EmbeddingOutput output;
    bool cancelled = false;
  };
  // One text of a step: an input of a job.
  struct Place {
    Job* job = nullptr;
    size_t input = 0;
  };

  Status Check(const EmbeddingRequest& request) const;
  Result<std::vector<int32_t>> TokensOf(const std::string& text, const std::string& prompt,
                                        const EmbeddingRequest& request) const;
  Status Truncate(const EmbeddingRequest& request, bool special, std::vector<int32_t>& ids) const;
  Status CheckLength(size_t tokens, const std::string& path) const;

  void Run();  // the engine thread's function
  std::vector<Place> NextBatch() REQUIRES(mutex_);
  // Runs a batch without the lock and gives its vectors to their jobs.
  void RunBatch(const std::vector<Place>& batch) EXCLUDES(mutex_);
  void TakeVectors(const std::vector<Place>& batch, std::vector<std::vector<float>> vectors);
  // Removes jobs that are complete, cancelled or failed, and counts them.
  std::vector<std::unique_ptr<Job>> TakeEnded() REQUIRES(mutex_);
  EngineStats StatsNow(TimePoint now) const REQUIRES(mutex_);
  std::shared_ptr<const EngineSnapshot> MakeSnapshot(TimePoint now) const REQUIRES(mutex_);
  static bool Ended(const Job& job);

  EmbeddingParts parts_;
  std::atomic<RequestId> next_id_{1};

  mutable Mutex mutex_;
  CondVar wake_;      // for the engine thread: a job, a cancellation, a watcher or the end
  CondVar all_done_;  // for Drain
  std::deque<std::unique_ptr<Job>> jobs_ GUARDED_BY(mutex_);  // by id
  std::vector<SnapshotCallback> watchers_ GUARDED_BY(mutex_);
  int64_t open_ GUARDED_BY(mutex_) = 0;  // jobs whose callback has not returned
  RequestId last_served_ GUARDED_BY(mutex_) = 0;
  bool draining_ GUARDED_BY(mutex_) = false;
  bool stop_ GUARDED_BY(mutex_) = false;
  Status failed_ GUARDED_BY(mutex_);
  EngineStats counted_ GUARDED_BY(mutex_);
  TimePoint last_progress_ GUARDED_BY(mutex_){};

  std::thread thread_;  // last member, because it uses the others
};

}  // namespace tokamak
