#include "server/low_priority_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tokamak {
namespace {

using testing::ElementsAre;

constexpr size_t kSmallBytes = 100;
constexpr size_t kLargeBytes = 101;

LowPriorityPool::Limits TestLimits() {
  return {.small_bytes = kSmallBytes, .max_small_waiting = 1 << 20, .max_large_waiting = 1 << 20};
}

// A job that keeps its thread busy until the test ends it.
class Blocker {
 public:
  Blocker(LowPriorityPool& pool, size_t bytes) {
    const auto job = pool.Push(bytes, [gate = gate_](LowPriorityPool::JobId id) {
      gate->started.set_value(id);
      gate->ended.get_future().wait();
    });
    EXPECT_TRUE(job.ok());
    EXPECT_EQ(gate_->started.get_future().get(), *job);
    id_ = *job;
  }
  ~Blocker() { End(); }
  void End() {
    if (!std::exchange(ended_, true)) gate_->ended.set_value();
  }
  LowPriorityPool::JobId id() const { return id_; }

 private:
  struct Gate {
    std::promise<LowPriorityPool::JobId> started;
    std::promise<void> ended;
  };
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  LowPriorityPool::JobId id_ = 0;
  bool ended_ = false;
};

// Keeps both threads busy: one with a large job, the other with a small one.
struct BothBusy {
  explicit BothBusy(LowPriorityPool& pool) : large(pool, kLargeBytes), small(pool, kSmallBytes) {}
  Blocker large;
  Blocker small;
};

TEST(LowPriorityPool, RunsEveryJobOnce) {
  constexpr int kJobs = 1000;
  std::vector<std::atomic<int>> runs(kJobs);
  std::promise<void> all;
  std::atomic<int> left{kJobs};
  LowPriorityPool pool({});
  for (int i = 0; i < kJobs; ++i) {
    const auto job = pool.Push(i % 3 == 0 ? 100000 : 10, [&, i](LowPriorityPool::JobId) {
      ++runs[i];
      if (--left == 0) all.set_value();
    });
    if (!job.ok()) {  // the queue of large ones may be full
      ++runs[i];
      if (--left == 0) all.set_value();
    }
  }
  all.get_future().wait();
  for (const auto& run : runs) EXPECT_EQ(run, 1);
}

TEST(LowPriorityPool, TakesLargeJobsFirstOnOneThreadAndBothKindsInOrder) {
  LowPriorityPool pool(TestLimits());
  BothBusy busy(pool);
  std::vector<std::string> order;  // written only by the thread that is not blocked
  std::promise<void> all;
  const auto push = [&](size_t bytes, const char* name, bool last = false) {
    EXPECT_TRUE(pool.Push(bytes,
                          [&, name, last](LowPriorityPool::JobId) {
                            order.push_back(name);
                            if (last) all.set_value();
                          })
                    .ok());
  };
  push(1, "small 1");
  push(kLargeBytes, "large 1");
  push(kSmallBytes, "small 2", true);
  push(kLargeBytes, "large 2");
  busy.large.End();
  all.get_future().wait();
  EXPECT_THAT(order, ElementsAre("large 1", "large 2", "small 1", "small 2"));
  busy.small.End();
  pool.Stop();  // before the variables of its jobs end
}

TEST(LowPriorityPool, KeepsOneThreadFreeOfLargeJobs) {
  LowPriorityPool pool(TestLimits());
  Blocker large(pool, kLargeBytes);
  std::promise<void> second_large, small;
  ASSERT_TRUE(
      pool.Push(kLargeBytes, [&](LowPriorityPool::JobId) { second_large.set_value(); }).ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool.Push(1,
                          [&, i](LowPriorityPool::JobId) {
                            if (i == 99) small.set_value();
                          })
                    .ok());
  }
  small.get_future().wait();
  std::future<void> waits = second_large.get_future();
  EXPECT_EQ(waits.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  large.End();
  waits.wait();
  pool.Stop();
}

TEST(LowPriorityPool, CancelDropsAWaitingJob) {
  LowPriorityPool pool(TestLimits());
  BothBusy busy(pool);
  for (const size_t bytes : {kSmallBytes, kLargeBytes}) {
    const auto held = std::make_shared<int>();
    std::atomic<bool> ran{false};
    const auto dropped = pool.Push(bytes, [&ran, held](LowPriorityPool::JobId) { ran = true; });
    ASSERT_TRUE(dropped.ok());
    EXPECT_EQ(held.use_count(), 2);
    pool.Cancel(*dropped);
    EXPECT_EQ(held.use_count(), 1);
    pool.Cancel(*dropped);
    EXPECT_FALSE(ran);
  }
  pool.Cancel(busy.large.id());  // it runs, and is not stopped
  pool.Cancel(12345);
  busy.large.End();
  busy.small.End();
}

TEST(LowPriorityPool, BoundsWaitingBytes) {
  LowPriorityPool::Limits limits = TestLimits();
  limits.max_small_waiting = 2 * (LowPriorityPool::kJobBytes + 10);
  limits.max_large_waiting = 1000;
  LowPriorityPool pool(limits);
  BothBusy busy(pool);
  std::atomic<int> ran{0};
  const auto push = [&](size_t bytes) {
    return pool.Push(bytes, [&](LowPriorityPool::JobId) { ++ran; });
  };
  ASSERT_TRUE(push(10).ok());
  ASSERT_TRUE(push(10).ok());
  EXPECT_EQ(push(0).status().code(), StatusCode::kUnavailable);
  const auto huge = push(1 << 30);  // beyond the limit, but alone
  ASSERT_TRUE(huge.ok());
  EXPECT_EQ(push(kLargeBytes).status().code(), StatusCode::kUnavailable);
  pool.Cancel(*huge);
  ASSERT_TRUE(push(kLargeBytes).ok());
  busy.large.End();
  busy.small.End();
  while (ran < 3) std::this_thread::yield();
  EXPECT_TRUE(push(10).ok());  // ended jobs do not count
  pool.Stop();
}

TEST(LowPriorityPool, StopDropsWaitingJobsAndLetsRunningOnesEnd) {
  LowPriorityPool pool(TestLimits());
  BothBusy busy(pool);
  const auto held = std::make_shared<int>();
  std::atomic<bool> ran{false};
  for (const size_t bytes : {kSmallBytes, kLargeBytes}) {
    ASSERT_TRUE(pool.Push(bytes, [&ran, held](LowPriorityPool::JobId) { ran = true; }).ok());
  }
  std::thread stop([&] { pool.Stop(); });
  for (;;) {  // until Stop has begun
    const auto late = pool.Push(1, [&ran](LowPriorityPool::JobId) { ran = true; });
    if (!late.ok()) break;
    pool.Cancel(*late);
  }
  busy.large.End();
  busy.small.End();
  stop.join();
  EXPECT_FALSE(ran);
  EXPECT_EQ(held.use_count(), 1);
  pool.Stop();
}

TEST(LowPriorityPool, RunsBelowThePriorityOfTheProcess) {
  LowPriorityPool pool(TestLimits());
  const int here = ::getpriority(PRIO_PROCESS, 0);
  for (const size_t bytes : {kSmallBytes, kLargeBytes}) {
    const auto nice = std::make_shared<std::promise<int>>();
    ASSERT_TRUE(pool.Push(bytes,
                          [nice](LowPriorityPool::JobId) {
                            nice->set_value(::getpriority(PRIO_PROCESS, 0));
                          })
                    .ok());
    EXPECT_EQ(nice->get_future().get(), std::min(here + LowPriorityPool::kNiceLevels, 19));
  }
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), here);
}

}  // namespace
}  // namespace tokamak
