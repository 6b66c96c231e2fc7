// Checks that simulations meet all the cases that they are meant to test.
#include "sim/simulation.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace tokamak::sim {
namespace {

// Runs the schedules of the seeds from 1 on. Each must pass.
ScheduleStats RunSchedules(uint64_t count, ScheduleOptions options) {
  SetLogLevel(LogLevel::kOff);
  ScheduleStats total;
  for (options.seed = 1; options.seed <= count; ++options.seed) {
    Simulation simulation(options);
    EXPECT_EQ(simulation.Run(), "")
        << "seed " << options.seed << ", depth " << options.depth << ", ranks " << options.ranks;
    total.Add(simulation.stats());
  }
  return total;
}

TEST(Simulation, AnUnhealthyRowEndsItsRequestAtEveryDepth) {
  for (const int32_t depth : {1, 2, 4}) {
    const ScheduleStats total = RunSchedules(120, {.depth = depth});
    for (const RowHealth health : {RowHealth::kNotFinite, RowHealth::kNoCandidate}) {
      EXPECT_GT(total.unhealthy[static_cast<size_t>(health)], 10)
          << "health " << static_cast<int>(health) << ", depth " << depth;
    }
  }
}

// Tokens are those of the model all the same, and steps those that a single executor takes. On one
// stage and on several; with speculation, masks, beams, swaps and the prefix cache.
TEST(Simulation, RanksAreLateOvertakeEachOtherAndFail) {
  for (const int32_t ranks : {1, 2, 3}) {
    const ScheduleStats total = RunSchedules(100, {.ranks = ranks});
    EXPECT_EQ(total.with_ranks, 100);
    EXPECT_EQ(total.overtaken > 100, ranks > 1) << total.overtaken;
    EXPECT_GT(total.failures, 100);
    EXPECT_GT(total.restarts, 50);
    EXPECT_GT(total.failed_engines, 5);
    EXPECT_GT(total.accepted, 100);
    EXPECT_GT(total.masked, 10);
    EXPECT_GT(total.proposals, 100);
    EXPECT_GT(total.searches, 100);
    EXPECT_GT(total.structured, 100);
    EXPECT_GT(total.encoded, 100);
    EXPECT_GT(total.copies, 100);
    EXPECT_GT(total.cached_tokens, 1000);
    EXPECT_GT(total.preemptions, 100);
  }
}

}  // namespace
}  // namespace tokamak::sim
