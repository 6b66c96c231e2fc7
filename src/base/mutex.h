// Mutex with clang's thread-safety annotations, checked by the clang builds (-Wthread-safety). Mark
// guarded state with GUARDED_BY(mutex_).
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TOKAMAK_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TOKAMAK_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(x) TOKAMAK_THREAD_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY TOKAMAK_THREAD_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) TOKAMAK_THREAD_ANNOTATION(guarded_by(x))
#define REQUIRES(...) TOKAMAK_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TOKAMAK_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) TOKAMAK_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) TOKAMAK_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS TOKAMAK_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace tokamak {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Releases `mutex`, sleeps, and reacquires it. May wake spuriously: call in a loop that checks
  // the condition.
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Wait with a limit. Returns false if `timeout` elapsed.
  template <typename Duration>
  bool WaitFor(Mutex& mutex, Duration timeout) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool woken = condition_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace tokamak
