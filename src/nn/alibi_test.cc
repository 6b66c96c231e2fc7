#include "nn/alibi.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tokamak::nn {
namespace {

TEST(Alibi, PowersOfTwoAreAGeometricSeries) {
  const std::vector<float> slopes = AlibiSlopes(8, 8);
  ASSERT_EQ(slopes.size(), 8u);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(slopes[static_cast<size_t>(i)], std::ldexp(1.0f, -i - 1));
  EXPECT_EQ(AlibiSlopes(1, 8), std::vector<float>{1.0f / 256});
  EXPECT_EQ(AlibiSlopes(2, 16), (std::vector<float>{1.0f / 256, 1.0f / 65536}));
}

// From transformers 5.23: build_mpt_alibi_tensor(num_heads, 2, bias_max)[:, 0, 0], negated.
TEST(Alibi, OtherCountsTakeFromTheNextPowerOfTwo) {
  EXPECT_EQ(AlibiSlopes(3, 8), (std::vector<float>{0.0625f, 0.00390625f, 0.25f}));
  EXPECT_EQ(AlibiSlopes(5, 8), (std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f}));
  const std::vector<float> expected = {0.297301769f, 0.0883883461f, 0.0262780134f,
                                       0.0078125f,   0.545253873f,  0.162104934f};
  const std::vector<float> six = AlibiSlopes(6, 7);
  ASSERT_EQ(six.size(), expected.size());
  for (size_t i = 0; i < six.size(); ++i) EXPECT_FLOAT_EQ(six[i], expected[i]) << i;
}

}  // namespace
}  // namespace tokamak::nn
