#include "ops/cpu/ceiling.h"

#include <gtest/gtest.h>

#include "ops/cpu/cpu_ops.h"

namespace tokamak {
namespace {

// That each loop runs and counts something; how fast this machine is, no test can know.
TEST(CpuCeiling, IsMeasuredForEveryIsaThatRunsHere) {
  for (const std::string& isa : CpuIsaNames()) {
    const Result<std::unique_ptr<Ops>> ops = MakeCpuOps({.threads = 1, .isa = isa});
    if (!ops.ok()) continue;
    const CpuCeiling ceiling = MeasureCpuCeiling(2, (*ops)->name(), 1 << 20);
    EXPECT_GT(ceiling.memory_gb_s, 0) << isa;
    EXPECT_GT(ceiling.weights_gb_s, 0) << isa;
    EXPECT_GT(ceiling.cache_gb_s, 0) << isa;
    EXPECT_GT(ceiling.int8_gmac_s, 0) << isa;
    EXPECT_GT(ceiling.f32_gmac_s, 0) << isa;
  }
}

}  // namespace
}  // namespace tokamak
