#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace tokamak {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

// Loops of changing length without a pause: a worker that comes late to one loop must not run one
// of its items twice, nor an item of the next loop with the old body. The counters are plain
// integers, so a wrong claim is also a data race for TSan.
TEST_P(ThreadPoolTest, EveryItemRunsOnceInEveryLoop) {
  ThreadPool pool(GetParam());
  std::vector<int> runs(97);
  for (int loop = 0; loop < 5000; ++loop) {
    const int64_t num_items = 1 + (loop * 31) % 97;
    std::fill(runs.begin(), runs.end(), 0);
    const int stamp = loop + 1;
    // Prefetching must not change results, wherever it points.
    const auto* ahead = reinterpret_cast<const std::byte*>(loop % 3 == 0 ? nullptr : runs.data());
    pool.FetchWhileWaiting(ahead, loop % 3 == 2 ? size_t{1} << 40 : 0);
    pool.ParallelFor(num_items, [&](int64_t item, int worker) {
      ASSERT_LT(worker, pool.num_threads());
      runs[static_cast<size_t>(item)] += stamp;
    });
    for (size_t item = 0; item < runs.size(); ++item) {
      ASSERT_EQ(runs[item], item < static_cast<size_t>(num_items) ? stamp : 0)
          << "loop " << loop << " item " << item;
    }
  }
}

TEST_P(ThreadPoolTest, ResultsAreVisibleToTheCallerAndToTheNextLoop) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(64, 1);
  for (int loop = 0; loop < 1000; ++loop) {
    // Item i reads what another worker wrote to i + 1 in the previous loop.
    std::vector<int64_t> next(values.size());
    pool.ParallelFor(static_cast<int64_t>(values.size()), [&](int64_t item, int) {
      const auto i = static_cast<size_t>(item);
      next[i] = values[(i + 1) % values.size()] + 1;
    });
    values.swap(next);
  }
  for (int64_t value : values) EXPECT_EQ(value, 1001);
}

TEST_P(ThreadPoolTest, WorkersThatParkedWakeAgain) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::atomic<int64_t> sum{0};
    pool.ParallelFor(100, [&](int64_t item, int) { sum += item; });
    EXPECT_EQ(sum.load(), 4950);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than workers spin
  }
}

TEST_P(ThreadPoolTest, CallsNothingForNoItems) {
  ThreadPool pool(GetParam());
  pool.ParallelFor(0, [](int64_t, int) { FAIL(); });
  pool.ParallelFor(-3, [](int64_t, int) { FAIL(); });
}

TEST_P(ThreadPoolTest, CanBeMadeAndDestroyedWithoutALoop) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(GetParam());
}

TEST_P(ThreadPoolTest, CanBeDestroyedRightAfterALoop) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(GetParam());
    std::atomic<int> runs{0};
    pool.ParallelFor(8, [&](int64_t, int) { ++runs; });
    EXPECT_EQ(runs.load(), 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPool, ItemsThatWaitForEachOtherRunConcurrently) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  std::set<int> workers;
  std::mutex mutex;
  pool.ParallelFor(2, [&](int64_t, int worker) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
    std::lock_guard<std::mutex> lock(mutex);
    workers.insert(worker);
  });
  EXPECT_EQ(workers, (std::set<int>{0, 1}));
}

TEST(ThreadPool, PinnedWorkersHaveACoreOfTheirOwnAndTheCallerAny) {
  const auto cpus = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
    return set;
  };
  const cpu_set_t all = cpus();
  if (CPU_COUNT(&all) < 2 || ThreadPool::PhysicalCores() < 2) GTEST_SKIP() << "one core";
  ThreadPool pool(2, /*pin=*/true);
  std::atomic<int> arrived{0};
  cpu_set_t seen[2];
  pool.ParallelFor(2, [&](int64_t, int worker) {
    seen[worker] = cpus();
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();  // so that each worker gets one item
  });
  EXPECT_EQ(CPU_COUNT(&seen[1]), 1);
  EXPECT_NE(CPU_EQUAL(&seen[0], &all), 0);
}

TEST(ThreadPool, IdleWorkersUseNoCpu) {
  ThreadPool pool(4);
  pool.ParallelFor(16, [](int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto cpu_ms = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  const auto before = cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Three workers that kept spinning would use 300 ms or more.
  EXPECT_LT(cpu_ms() - before, 100);
}

TEST(ThreadPoolDeathTest, ALoopWithinALoopIsABug) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.ParallelFor(4, [&](int64_t, int) { pool.ParallelFor(4, [](int64_t, int) {}); });
      },
      "ParallelFor inside ParallelFor");
}

TEST(ThreadPool, PhysicalCoresIsAtLeastOneAndAtMostTheHardwareThreads) {
  EXPECT_GE(ThreadPool::PhysicalCores(), 1);
  EXPECT_LE(ThreadPool::PhysicalCores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace tokamak
