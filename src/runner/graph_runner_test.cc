// How many graphs a runner captures at the start: each one takes time and memory.
#include "runner/graph_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "runner/testing/queued_ops.h"

namespace tokamak::testing {
namespace {

constexpr size_t kMostGraphs = 45;

TEST(GraphRunner, TheSizesAreFewAndLeaveLittlePadding) {
  const auto ops = MakeQueuedOps(*MakeCpuOps({.threads = 1}), 1);
  for (int32_t max_rows = 1; max_rows <= 1100; ++max_rows) {
    const auto runner = GraphRunner::Make(CudaGraphs::kOn, *ops, max_rows);
    ASSERT_TRUE(runner.ok());
    const std::vector<int32_t> sizes(runner->capture_sizes().begin(),
                                     runner->capture_sizes().end());
    ASSERT_LE(sizes.size(), kMostGraphs) << max_rows;
    EXPECT_EQ(sizes.front(), 1);
    EXPECT_EQ(sizes.back(), std::min(max_rows, 512));
    for (size_t i = 1; i < sizes.size(); ++i) {
      EXPECT_LT(sizes[i - 1], sizes[i]);
      // From 16 rows on, less than a quarter of what is computed is padding.
      if (sizes[i - 1] >= 16) {
        EXPECT_LE(4 * (sizes[i] - sizes[i - 1]), sizes[i - 1]) << max_rows;
      }
    }
  }
}

}  // namespace
}  // namespace tokamak::testing
