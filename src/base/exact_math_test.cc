#include "base/exact_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace tokamak {
namespace {

TEST(ExactLog, HasTheseBits) {
  EXPECT_EQ(ExactLog(1.0), 0.0);
  EXPECT_EQ(ExactLog(2.0), 0x1.62e42fefa39efp-1);
  EXPECT_EQ(ExactLog(0.1), -0x1.26bb1bbb55515p+1);
  EXPECT_EQ(ExactLog(0x1.921fb54442d18p+1), 0x1.250d048e7a1bdp+0);
  EXPECT_EQ(ExactLog(1.0 - 0x1p-33), -0x1.000000004p-33);
}

TEST(ExactLog, IsConstexpr) {
  static_assert(ExactLog(1.0) == 0.0);
  static_assert(ExactExp(0.0f) == 1.0f);
}

TEST(ExactLog, StaysWithinItsError) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> near_one(0.70, 1.42);
  std::uniform_real_distribution<double> exponent(-700, 700);
  double worst = 0;
  const auto note = [&worst](double x, long double exact) {
    const long double error = std::fabs((static_cast<long double>(ExactLog(x)) - exact) / exact);
    worst = std::max(worst, static_cast<double>(error));
  };
  for (int i = 0; i < 1'000'000; ++i) {
    double x = near_one(random);
    if (x != 1.0) note(x, std::log(static_cast<long double>(x)));
    x = std::exp(exponent(random));
    note(x, std::log(static_cast<long double>(x)));
  }
  // Towards 1 from both sides, where the result is tiny.
  for (int bits = 2; bits <= 52; ++bits) {
    for (const double x : {1.0 - std::ldexp(1.0, -bits), 1.0 + std::ldexp(1.0, -bits)}) {
      note(x, std::log1p(static_cast<long double>(x) - 1.0L));
    }
  }
  EXPECT_LT(worst, 8e-16);
}

TEST(ExactExp, HasTheseBits) {
  EXPECT_EQ(ExactExp(0.0f), 1.0f);
  EXPECT_EQ(ExactExp(-1.0f), 0x1.78b564p-2f);
  EXPECT_EQ(ExactExp(-0.1f), 0x1.cf46dap-1f);
  EXPECT_EQ(ExactExp(-27.5f), 0x1.40e112p-40f);
  EXPECT_EQ(ExactExp(-80.0f), 0x1.7fd976p-116f);
  EXPECT_EQ(ExactExp(-1e30f), 0x1.7fd976p-116f);
  EXPECT_EQ(ExactExp(-INFINITY), 0x1.7fd976p-116f);
}

TEST(ExactExp, StaysWithinItsError) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<float> range(-80, 0);
  double worst = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const float y = i % 2 == 0 ? range(random) : range(random) / 64;
    const double exact = std::exp(static_cast<double>(y));
    worst = std::max(worst, std::fabs((static_cast<double>(ExactExp(y)) - exact) / exact));
  }
  EXPECT_LT(worst, 1.5e-7);
}

}  // namespace
}  // namespace tokamak
