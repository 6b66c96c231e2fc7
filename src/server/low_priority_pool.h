// Threads of low priority for what a request needs before the engine can have it.
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

// Two threads and two queues of jobs whose time is in proportion to their input. Small jobs run in
// the order of their arrival, and so do large ones. One thread takes small jobs alone, the other
// takes large ones first and small ones when there are none. Neither kind can starve the other: a
// small job waits for at most the small ones before it, each of which takes milliseconds, and a
// large job for the large ones before it and the one small job that its thread is at.
//
// The threads run 10 nice levels below the process (on Linux, niceness belongs to a thread): they
// get about a tenth of a core that the engine's threads want too, and all of one that is free. Not
// less, as SCHED_IDLE would give: a server whose cores are always busy must go on taking requests.
//
// Thread-safe.
class LowPriorityPool {
 public:
  static constexpr int kNiceLevels = 10;

  struct Limits {
    // A job with more input is large. Tokenizing 64 KiB takes 10 ms at worst (one letter over and
    // over), 1.5 ms for English.
    size_t small_bytes = 64 << 10;
    // Limit waiting input, each job counted with kJobBytes more: memory, and at 10 MB/s time.
    size_t max_small_waiting = 16 << 20;
    size_t max_large_waiting = 64 << 20;
    // A job that runs for longer is stuck: with a tenth of a core, the largest body takes less.
    double stuck_seconds = 120;
  };
  static constexpr size_t kJobBytes = 1024;

  using JobId = uint64_t;

  explicit LowPriorityPool(const Limits& limits);
  // Does what Stop does.
  ~LowPriorityPool();
  LowPriorityPool(const LowPriorityPool&) = delete;
  LowPriorityPool& operator=(const LowPriorityPool&) = delete;

  // Queues `work`, which gets the job's id and must not throw. kUnavailable when as many bytes wait
  // as may (one job may always wait, however large), and after Stop.
  Result<JobId> Push(size_t input_bytes, std::function<void(JobId)> work) EXCLUDES(mutex_);
  // Drops the job if it waits; does nothing when it runs or has ended.
  void Cancel(JobId job) EXCLUDES(mutex_);
  // For how long the job has run that began first of those that run; nothing when none runs.
  std::optional<double> longest_seconds() const EXCLUDES(mutex_);
  // Drops what waits and returns when what runs has ended.
  void Stop() EXCLUDES(mutex_);

 private:
  struct Job {
    size_t bytes = 0;
    std::function<void(JobId)> work;
  };
  struct Queue {
    std::map<JobId, Job> jobs;  // the oldest first: ids ascend
    size_t bytes = 0;
    size_t max_bytes = 0;
  };
  enum Kind { kSmall, kLarge };

  void Run(bool takes_large) EXCLUDES(mutex_);
  // The queue that a thread takes its next job from, or null.
  Queue* NextQueue(bool takes_large) REQUIRES(mutex_);
  static Job Remove(Queue& queue, std::map<JobId, Job>::iterator job);

  const size_t small_bytes_;
  mutable Mutex mutex_;
  CondVar wake_;
  std::array<Queue, 2> queues_ GUARDED_BY(mutex_);  // [Kind]
  // [takes_large]: when that thread began its job; nothing while it has none.
  std::array<std::optional<std::chrono::steady_clock::time_point>, 2> began_ GUARDED_BY(mutex_);
  JobId next_id_ GUARDED_BY(mutex_) = 1;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::array<std::thread, 2> threads_;
};

}  // namespace tokamak
