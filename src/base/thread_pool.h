// The compute pool: the calling thread is worker 0 and the others help it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace tokamak {

// Runs loops over independent items on a fixed set of threads. One caller at a time (its owner
// thread, which works too). Workers spin for a bounded time between loops and then park, so an idle
// process uses no CPU.
class ThreadPool {
 public:
  // `num_threads` counts the caller; 1 makes no threads. With `pin`, each of the others stays on a
  // physical core of its own, as far as there are enough, and leaves the first to the caller, whose
  // own affinity is not touched: threads that it starts would inherit it.
  explicit ThreadPool(int num_threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(item, worker) once for each item in [0, num_items), in any order and on any worker
  // in [0, num_threads). Returns when all are done. Where a result depends on how work
  // is cut, it must be cut by shape, never by thread count. `body` must not throw, and must not
  // call ParallelFor.
  void ParallelFor(int64_t num_items, FunctionRef<void(int64_t item, int worker)> body);

  // CPU cores this process may run on, hyper-threads of one core counted once, and no more than
  // its container's CPU limit.
  static int PhysicalCores();

  // Bytes that a later loop will read from front to back: threads that wait for work fetch the
  // beginnings of their shares into their caches. For the caller between loops. Memory that is gone
  // by then does no harm.
  void FetchWhileWaiting(const std::byte* data, size_t bytes);

 private:
  struct Shared;
  void WorkerLoop(int worker);

  const int num_threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace tokamak
