#include "ops/cpu/roofline.h"

#include <gtest/gtest.h>

#include "ops/cpu/cpu_ops.h"

namespace tokamak {
namespace {

// Each loop runs and counts something. The machine's speed is not tested.
TEST(CpuRoofline, IsMeasuredForEveryIsaThatRunsHere) {
  for (const std::string& isa : CpuIsaNames()) {
    const Result<std::unique_ptr<Ops>> ops = MakeCpuOps({.threads = 1, .isa = isa});
    if (!ops.ok()) continue;
    const CpuRoofline roofline = MeasureCpuRoofline(2, (*ops)->name(), 1 << 20);
    EXPECT_GT(roofline.memory_gb_s, 0) << isa;
    EXPECT_GT(roofline.weights_gb_s, 0) << isa;
    EXPECT_GT(roofline.cache_gb_s, 0) << isa;
    EXPECT_GT(roofline.int8_gmac_s, 0) << isa;
    EXPECT_GT(roofline.f32_gmac_s, 0) << isa;
    EXPECT_EQ(roofline.bf16_gmac_s > 0, isa == "avx512bf16" || isa == "amx") << isa;
    EXPECT_EQ(roofline.tile_gmac_s > 0, isa == "amx") << isa;
  }
}

}  // namespace
}  // namespace tokamak
