#include "server/low_priority_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace tokamak {
namespace {

// In POSIX a process has a niceness; on Linux each thread has its own. Lowering the priority needs
// no privilege.
void LowerPriority() {
  const auto thread = static_cast<id_t>(::gettid());
  const int now = ::getpriority(PRIO_PROCESS, thread);
  if (::setpriority(PRIO_PROCESS, thread, now + LowPriorityPool::kNiceLevels) != 0) {
    LogWarning("cannot lower the priority of a thread; tokenizing may slow generation down");
  }
}

}  // namespace

LowPriorityPool::LowPriorityPool(const Limits& limits) : small_bytes_(limits.small_bytes) {
  queues_[kSmall].max_bytes = limits.max_small_waiting;
  queues_[kLarge].max_bytes = limits.max_large_waiting;
  for (const bool takes_large : {false, true}) {
    threads_[takes_large] = std::thread([this, takes_large] { Run(takes_large); });
  }
}

LowPriorityPool::~LowPriorityPool() { Stop(); }

Result<LowPriorityPool::JobId> LowPriorityPool::Push(size_t input_bytes,
                                                     std::function<void(JobId)> work) {
  const Kind kind = input_bytes > small_bytes_ ? kLarge : kSmall;
  const size_t bytes = input_bytes + kJobBytes;
  MutexLock lock(mutex_);
  Queue& queue = queues_[kind];
  const bool full = !queue.jobs.empty() && queue.bytes + bytes > queue.max_bytes;
  if (full || stop_) {
    return Unavailable("the queue is full: {} requests of {} bytes wait to be tokenized",
                       queue.jobs.size(), queue.bytes);
  }
  const JobId id = next_id_++;
  queue.jobs.emplace(id, Job{bytes, std::move(work)});
  queue.bytes += bytes;
  wake_.NotifyAll();  // NotifyOne might wake the thread that does not take this kind
  return id;
}

void LowPriorityPool::Cancel(JobId job) {
  Job dropped;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  for (Queue& queue : queues_) {
    const auto found = queue.jobs.find(job);
    if (found != queue.jobs.end()) dropped = Remove(queue, found);
  }
}

void LowPriorityPool::Stop() {
  std::array<std::map<JobId, Job>, 2> dropped;
  {
    MutexLock lock(mutex_);
    stop_ = true;
    for (const Kind kind : {kSmall, kLarge}) {
      std::swap(dropped[kind], queues_[kind].jobs);
      queues_[kind].bytes = 0;
    }
    wake_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void LowPriorityPool::Run(bool takes_large) {
  LowerPriority();
  for (;;) {
    JobId id = 0;
    Job job;
    {
      MutexLock lock(mutex_);
      Queue* queue = nullptr;
      while (!stop_ && (queue = NextQueue(takes_large)) == nullptr) wake_.Wait(mutex_);
      if (stop_) return;
      id = queue->jobs.begin()->first;
      job = Remove(*queue, queue->jobs.begin());
      began_[takes_large] = std::chrono::steady_clock::now();
    }
    job.work(id);
    MutexLock lock(mutex_);
    began_[takes_large].reset();
  }
}

std::optional<double> LowPriorityPool::longest_seconds() const {
  const auto now = std::chrono::steady_clock::now();
  std::optional<double> longest;
  MutexLock lock(mutex_);
  for (const auto& began : began_) {
    if (!began) continue;
    const double seconds = std::chrono::duration<double>(now - *began).count();
    longest = std::max(longest.value_or(0), seconds);
  }
  return longest;
}

LowPriorityPool::Queue* LowPriorityPool::NextQueue(bool takes_large) {
  if (takes_large && !queues_[kLarge].jobs.empty()) return &queues_[kLarge];
  return queues_[kSmall].jobs.empty() ? nullptr : &queues_[kSmall];
}

LowPriorityPool::Job LowPriorityPool::Remove(Queue& queue, std::map<JobId, Job>::iterator job) {
  Job removed = std::move(job->second);
  queue.bytes -= removed.bytes;
  queue.jobs.erase(job);
  return removed;
}

}  // namespace tokamak
