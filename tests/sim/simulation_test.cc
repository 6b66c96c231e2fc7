// Checks that simulations meet all the cases that they are meant to test.
#include "sim/simulation.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace tokamak::sim {
namespace {

TEST(Simulation, AnUnhealthyRowEndsItsRequestAtEveryDepth) {
  SetLogLevel(LogLevel::kOff);
  for (const int32_t depth : {1, 2, 4}) {
    ScheduleStats total;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
      ScheduleOptions options;
      options.seed = seed;
      options.depth = depth;
      Simulation simulation(options);
      EXPECT_EQ(simulation.Run(), "") << "seed " << seed << ", depth " << depth;
      total.Add(simulation.stats());
    }
    for (const RowHealth health : {RowHealth::kNotFinite, RowHealth::kNoCandidate}) {
      EXPECT_GT(total.unhealthy[static_cast<size_t>(health)], 10)
          << "health " << static_cast<int>(health) << ", depth " << depth;
    }
  }
}

}  // namespace
}  // namespace tokamak::sim
