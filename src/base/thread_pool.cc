#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace tokamak {
namespace {

// About 50 µs: longer than the serial work between two ops of a small model, short enough that a
// finished request frees the core at once.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// A loop is published by raising `generation`; each worker answers by raising `finished`. Items are
// claimed from `next`.
struct ThreadPool::Shared {
  alignas(64) std::atomic<uint32_t> generation{0};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<int> busy{0};  // workers that have not finished this generation
  std::atomic<bool> stop{false};
  int64_t num_items = 0;
  std::optional<FunctionRef<void(int64_t, int)>> body;
  std::vector<std::thread> threads;

  void Work(int worker) {
    for (;;) {
      const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= num_items) return;
      (*body)(item, worker);
    }
  }
};

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads), shared_(std::make_unique<Shared>()) {
  CHECK(num_threads >= 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    shared_->threads.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_relaxed);
  shared_->generation.fetch_add(1, std::memory_order_release);
  shared_->generation.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void ThreadPool::ParallelFor(int64_t num_items, FunctionRef<void(int64_t, int)> body) {
  if (num_items <= 0) return;
  if (num_threads_ == 1 || num_items == 1) {
    for (int64_t item = 0; item < num_items; ++item) body(item, 0);
    return;
  }
  Shared& s = *shared_;
  s.num_items = num_items;
  s.body.emplace(body);
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(num_threads_ - 1, std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_release);
  s.generation.notify_all();
  s.Work(0);
  for (int spins = 0; s.busy.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();  // a worker was descheduled: let it have this core
    }
  }
}

void ThreadPool::WorkerLoop(int worker) {
  Shared& s = *shared_;
  uint32_t seen = 0;
  for (;;) {
    uint32_t generation = s.generation.load(std::memory_order_acquire);
    for (int spins = 0; generation == seen && spins < kSpins; ++spins) {
      Pause();
      generation = s.generation.load(std::memory_order_acquire);
    }
    if (generation == seen) {
      s.generation.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = generation;
    if (s.stop.load(std::memory_order_relaxed)) return;
    s.Work(worker);
    s.busy.fetch_sub(1, std::memory_order_release);
  }
}

int ThreadPool::PhysicalCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  std::set<std::string> cores;  // each core named by the list of hyper-threads that share it
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
    std::string list;
    if (!std::getline(siblings, list)) list = "cpu" + std::to_string(cpu);
    cores.insert(list);
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

}  // namespace tokamak
