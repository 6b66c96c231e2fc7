#include "cli/bench_load.h"

#include <gtest/gtest.h>

namespace tokamak::cli {
namespace {

TEST(PercentilesOf, SortsTheValues) { EXPECT_EQ(PercentilesOf({3, 1, 2}).p50, 2); }

}  // namespace
}  // namespace tokamak::cli
