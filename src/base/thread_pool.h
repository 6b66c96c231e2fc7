// The compute pool. The calling thread is worker 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace tokamak {

// Runs loops over independent items on a fixed set of threads. Only its owner thread may call it.
// Workers spin briefly between loops and then park, so an idle process uses no CPU.
class ThreadPool {
 public:
  // `num_threads` includes the caller; 1 starts no threads. With `pin`, each started thread is
  // pinned to its own physical core, while there are enough cores. The first core is left to the
  // caller, whose affinity is not changed, because threads that it starts would inherit it.
  explicit ThreadPool(int num_threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(item, worker) once for each item in [0, num_items), in any order and on any worker
  // in [0, num_threads). Returns when all calls have returned. If a result depends on how work is
  // split, split it by shape, never by thread count. `body` must not throw or call ParallelFor.
  void ParallelFor(int64_t num_items, FunctionRef<void(int64_t item, int worker)> body);

  // Physical cores that this process may use, at most its container's CPU limit.
  static int PhysicalCores();

  // Hints that a later loop will read these bytes from front to back: waiting threads prefetch the
  // beginnings of their shares into their caches. Call it on the owner thread, between loops. The
  // memory may be freed at any time.
  void FetchWhileWaiting(const std::byte* data, size_t bytes);

 private:
  struct Shared;
  void WorkerLoop(int worker);

  const int num_threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace tokamak
