// Low-priority threads that prepare requests and write long responses.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "tokamak/status.h"

namespace tokamak {

// Two threads with two queues, for jobs that take time in proportion to their input. Small jobs run
// in the order in which they arrive, and so do large ones. One thread takes only small jobs. The
// other takes large jobs first, and small ones if there are no large ones. So neither kind starves:
// a small job waits only for the small ones before it, which take milliseconds each, and a large
// job waits for the large ones before it and at most one small one.
//
// The threads run 10 nice levels below the process (on Linux, niceness belongs to a thread). They
// get about a tenth of a core that the engine's threads want too, and all of an idle one.
// SCHED_IDLE would give less, but a server whose cores are always busy must still take requests.
//
// Thread-safe.
class LowPriorityPool {
 public:
  static constexpr int kNiceLevels = 10;

  struct Limits {
    // A job with more input is large. Tokenizing 64 KiB takes 1.5 ms for English, and 10 ms at
    // worst (one letter repeated).
    size_t small_bytes = 64 << 10;
    // Limits on the bytes of waiting input, because it takes memory and has to be worked through at
    // about 10 MB/s. Each job counts as kJobBytes more than its input.
    size_t max_small_waiting = 16 << 20;
    size_t max_large_waiting = 64 << 20;
    // A job that runs for longer is stuck. With a tenth of a core, the largest body takes less.
    double stuck_seconds = 120;
  };
  static constexpr size_t kJobBytes = 1024;

  using JobId = uint64_t;

  explicit LowPriorityPool(const Limits& limits);
  // Calls Stop.
  ~LowPriorityPool();
  LowPriorityPool(const LowPriorityPool&) = delete;
  LowPriorityPool& operator=(const LowPriorityPool&) = delete;

  // Queues `work`, which gets the job's id and must not throw. kUnavailable after Stop, or if the
  // limit of waiting bytes is reached. One job may always wait, however large it is.
  Result<JobId> Push(size_t input_bytes, std::function<void(JobId)> work) EXCLUDES(mutex_);
  size_t small_bytes() const { return small_bytes_; }
  // Drops a waiting job. Ignores jobs that are running or have ended.
  void Cancel(JobId job) EXCLUDES(mutex_);
  // Returns how long the oldest running job has run; nullopt if none runs.
  std::optional<double> longest_seconds() const EXCLUDES(mutex_);
  // Drops waiting jobs and waits for running ones.
  void Stop() EXCLUDES(mutex_);

 private:
  struct Job {
    size_t bytes = 0;
    std::function<void(JobId)> work;
  };
  struct Queue {
    std::map<JobId, Job> jobs;  // oldest first, because ids ascend
    size_t bytes = 0;
    size_t max_bytes = 0;
  };
  enum Kind { kSmall, kLarge };

  void Run(bool takes_large) EXCLUDES(mutex_);
  // Returns the queue from which a thread takes its next job, or null.
  Queue* NextQueue(bool takes_large) REQUIRES(mutex_);
  static Job Remove(Queue& queue, std::map<JobId, Job>::iterator job);

  const size_t small_bytes_;
  mutable Mutex mutex_;
  CondVar wake_;
  std::array<Queue, 2> queues_ GUARDED_BY(mutex_);  // [Kind]
  // [takes_large]: when that thread started its job; nullopt while it has none.
  std::array<std::optional<std::chrono::steady_clock::time_point>, 2> began_ GUARDED_BY(mutex_);
  JobId next_id_ GUARDED_BY(mutex_) = 1;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::array<std::thread, 2> threads_;
};

}  // namespace tokamak
