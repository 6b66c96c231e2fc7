#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/pause.h"

namespace tokamak {
namespace {

// About 50 µs: longer than the serial work between two ops of a small model, and short enough that
// a finished request frees its core at once.
constexpr int kSpins = 2000;

// Reads a cgroup's CPU limit, "quota period": quota µs of CPU time in every period µs. Returns the
// cores, rounded up (a limit of 1.5 can use two), or INT_MAX without a limit ("max", -1, no such
// file).
int QuotaCores(std::istream& limit) {
  double quota = 0;
  double period = 0;
  if (!(limit >> quota >> period) || quota <= 0 || period <= 0)
    return std::numeric_limits<int>::max();
  return static_cast<int>(std::ceil(quota / period));
}

// The tightest CPU limit of the process's cgroup and its parents. More threads than this would be
// throttled in the middle of a loop.
int QuotaCores() {
  int cores = std::numeric_limits<int>::max();
  std::ifstream groups("/proc/self/cgroup");  // lines "id:controllers:path"; version 2 is "0::path"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    for (bool more = true; more;) {
      if (controllers.empty()) {
        std::ifstream limit("/sys/fs/cgroup" + path + "/cpu.max");
        cores = std::min(cores, QuotaCores(limit));
      } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
        const std::string folder = "/sys/fs/cgroup/cpu" + path;
        std::ifstream quota(folder + "/cpu.cfs_quota_us");
        std::ifstream period(folder + "/cpu.cfs_period_us");
        std::stringstream limit;
        limit << quota.rdbuf() << ' ' << period.rdbuf();
        cores = std::min(cores, QuotaCores(limit));
      }
      more = !path.empty();
      if (more) path.erase(path.rfind('/'));
    }
  }
  return cores;
}

// The first hardware thread of each physical core that this process may use. Empty if unknown.
std::vector<int> CoreCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  std::set<std::string> cores;  // identified by the list of their hardware threads
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
    std::string list;
    if (!std::getline(siblings, list)) list = "cpu" + std::to_string(cpu);
    if (cores.insert(list).second) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

// The state of a loop fits in one word, so workers may be arbitrarily late. `ticket` holds the
// number of items (high half) and the next unclaimed one (low half); one exchange checks that items
// are left and claims them. `body` does not change while a claim runs, because the loop ends only
// when all items are counted in `done`. A worker that sleeps through a loop delays nobody; if it
// wakes during the next one, it helps with that.
//
// A claim takes a fraction of the remaining items, which are consecutive, so memory is read in long
// runs and claims are few. The last claims are single items, so all workers finish together.
struct ThreadPool::Shared {
  static constexpr int kCountShift = 32;

  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<int64_t> done{0};         // finished items of the current loop
  alignas(64) std::atomic<uint32_t> generation{0};  // incremented for each loop; workers wait on it
  uint64_t share = 1;  // a claim takes 1 / share of the remaining items
  std::atomic<bool> stop{false};
  std::atomic<bool> in_loop{false};
  std::optional<FunctionRef<void(int64_t, int)>> body;
  std::vector<std::thread> threads;

  // Memory to prefetch while waiting. Address and size may be from different calls; it is only a
  // hint.
  alignas(64) std::atomic<const std::byte*> ahead{nullptr};
  std::atomic<size_t> ahead_bytes{0};
  struct alignas(64) Fetched {
    const std::byte* of = nullptr;
    size_t bytes = 0;
  };
  std::vector<Fetched> fetched;  // by worker; each uses only its own

  // Prefetches a little, or pauses if there is nothing to prefetch.
  void Wait(int worker) {
    constexpr size_t kMost = 64 << 10, kStep = 256, kLine = 64;
    Fetched& mine = fetched[static_cast<size_t>(worker)];
    const std::byte* data = ahead.load(std::memory_order_relaxed);
    if (mine.of != data) mine = {data, 0};
    // The size of the loop's first claims.
    const size_t part = ahead_bytes.load(std::memory_order_relaxed) / share;
    if (data == nullptr || mine.bytes >= std::min(kMost, part)) return Pause();
    const std::byte* from = data + static_cast<size_t>(worker) * part + mine.bytes;
    for (size_t i = 0; i < kStep; i += kLine) __builtin_prefetch(from + i, 0, 2);
    mine.bytes += kStep;
  }

  void Work(int worker) {
    int64_t finished = 0;
    uint64_t claim = ticket.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t first = claim & ((uint64_t{1} << kCountShift) - 1);
      const uint64_t end = claim >> kCountShift;
      if (first >= end) break;
      const uint64_t count = std::max<uint64_t>(1, (end - first) / share);
      // Acquire: makes visible the `body` that was set before the loop was published.
      if (!ticket.compare_exchange_weak(claim, claim + count, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
        continue;
      }
      for (uint64_t item = first; item < first + count; ++item) {
        (*body)(static_cast<int64_t>(item), worker);
      }
      finished += static_cast<int64_t>(count);
      claim += count;
    }
    // Release: makes what the items wrote visible to the caller.
    if (finished > 0) done.fetch_add(finished, std::memory_order_release);
  }
};

ThreadPool::ThreadPool(int num_threads, bool pin)
    : num_threads_(num_threads), shared_(std::make_unique<Shared>()) {
  CHECK(num_threads >= 1);
  shared_->share = 2 * static_cast<uint64_t>(num_threads);
  shared_->fetched.resize(static_cast<size_t>(num_threads));
  for (int worker = 1; worker < num_threads; ++worker) {
    shared_->threads.emplace_back([this, worker] { WorkerLoop(worker); });
  }
  if (!pin) return;
  const std::vector<int> cpus = CoreCpus();
  for (size_t i = 0; i < shared_->threads.size() && i + 1 < cpus.size(); ++i) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[i + 1], &one);
    // Best effort: a container may forbid it.
    (void)::pthread_setaffinity_np(shared_->threads[i].native_handle(), sizeof(one), &one);
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_relaxed);
  shared_->generation.fetch_add(1, std::memory_order_seq_cst);
  shared_->generation.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void ThreadPool::ParallelFor(int64_t num_items, FunctionRef<void(int64_t, int)> body) {
  if (num_items <= 0) return;
  Shared& s = *shared_;
  CHECK_MSG(!s.in_loop.load(std::memory_order_relaxed), "ParallelFor inside ParallelFor");
  if (num_threads_ == 1 || num_items == 1) {
    for (int64_t item = 0; item < num_items; ++item) body(item, 0);
    return;
  }
  CHECK_MSG(num_items <= std::numeric_limits<int32_t>::max(), "too many items for one loop");
  s.in_loop.store(true, std::memory_order_relaxed);
  s.body.emplace(body);
  s.done.store(0, std::memory_order_relaxed);
  s.ticket.store(static_cast<uint64_t>(num_items) << Shared::kCountShift,
                 std::memory_order_release);
  // Sequentially consistent, because notify_all skips the system call if it sees no waiter: the
  // increment and that check must not be reordered.
  s.generation.fetch_add(1, std::memory_order_seq_cst);
  s.generation.notify_all();
  s.Work(0);
  for (int spins = 0; s.done.load(std::memory_order_acquire) != num_items;) {
    if (spins < kSpins) {
      ++spins;
      s.Wait(0);
    } else {
      std::this_thread::yield();  // a worker was descheduled within an item: yield this core
    }
  }
  s.in_loop.store(false, std::memory_order_relaxed);
}

void ThreadPool::WorkerLoop(int worker) {
  Shared& s = *shared_;
  uint32_t seen = 0;
  for (;;) {
    uint32_t generation = s.generation.load(std::memory_order_acquire);
    for (int spins = 0; generation == seen && spins < kSpins; ++spins) {
      s.Wait(worker);
      generation = s.generation.load(std::memory_order_acquire);
    }
    if (generation == seen) {
      s.generation.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = generation;
    if (s.stop.load(std::memory_order_relaxed)) return;
    s.Work(worker);
  }
}

void ThreadPool::FetchWhileWaiting(const std::byte* data, size_t bytes) {
  shared_->ahead.store(data, std::memory_order_relaxed);
  shared_->ahead_bytes.store(bytes, std::memory_order_relaxed);
}

int ThreadPool::PhysicalCores() {
  auto cores = static_cast<int>(CoreCpus().size());
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(QuotaCores(), 1, std::max(1, cores));
}

}  // namespace tokamak
