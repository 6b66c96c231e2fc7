#include "base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace tokamak {
namespace {

TEST(Mutex, ExcludesOtherThreads) {
  Mutex mutex;
  int64_t count = 0;  // not atomic: without the lock it loses increments and TSan reports a race
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10000; ++j) {
        MutexLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 40000);
}

class Queue {
 public:
  void Push(int value) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      items_.push_back(value);
    }
    not_empty_.NotifyOne();
  }
  int Pop() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (items_.empty()) not_empty_.Wait(mutex_);
    const int value = items_.front();
    items_.pop_front();
    return value;
  }

 private:
  Mutex mutex_;
  CondVar not_empty_;
  std::deque<int> items_ GUARDED_BY(mutex_);
};

TEST(CondVar, NoWakeUpIsLost) {
  Queue queue;
  Queue answers;
  std::thread echo([&] {
    for (int i = 0; i < 5000; ++i) answers.Push(queue.Pop() + 1);
  });
  for (int i = 0; i < 5000; ++i) {
    queue.Push(i);
    ASSERT_EQ(answers.Pop(), i + 1);
  }
  echo.join();
}

TEST(CondVar, WaitForReportsTheTimeoutAndHoldsTheLockAgain) {
  Mutex mutex;
  CondVar never;
  {
    MutexLock lock(mutex);
    while (never.WaitFor(mutex, std::chrono::milliseconds(1))) {
      // spurious wake-up
    }
    // If the lock were not held here, unlocking would be undefined and TSan would report it.
  }
  MutexLock again(mutex);
}

}  // namespace
}  // namespace tokamak
