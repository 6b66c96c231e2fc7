#include "ops/sampling/logits_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace tokamak::sampling {
namespace {

std::vector<float> RandomRow(size_t size, float scale, std::mt19937& random) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

TEST(Scan, FindsTheMaximumAndWhatIsNotFinite) {
  std::mt19937 random(1);
  for (const size_t size : {1u, 2u, 15u, 16u, 17u, 64u, 1000u}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> row = RandomRow(size, 3, random);
      row[at] = 100;
      EXPECT_EQ(Scan(row).max, 100);
      EXPECT_TRUE(Scan(row).usable);
      EXPECT_EQ(FirstOf(row, 100), static_cast<TokenId>(at));
      row[at] = -INFINITY;
      EXPECT_TRUE(Scan(row).usable);
      row[at] = INFINITY;
      EXPECT_FALSE(Scan(row).usable);
      row[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_FALSE(Scan(row).usable);
      row[at] = -row[at];
      EXPECT_FALSE(Scan(row).usable);
    }
  }
  EXPECT_EQ(Scan(std::vector<float>(20, -INFINITY)).max, -INFINITY);
}

TEST(FirstOf, TakesTheLowestIdAmongEquals) {
  std::vector<float> row(300, 1.0f);
  row[70] = row[150] = row[299] = 2.0f;
  EXPECT_EQ(FirstOf(row, 2.0f), 70);
}

TEST(TotalMass, IsThatOfSoftmaxWhateverTheOrder) {
  std::mt19937 random(2);
  for (const float scale : {0.1f, 2.0f, 20.0f}) {
    std::vector<float> row = RandomRow(5000, scale, random);
    row[17] = -INFINITY;
    const float max = Scan(row).max;
    double exact = 0;
    for (const float x : row) exact += std::exp(static_cast<double>(x) - max);
    const Mass mass = TotalMass(row, max);
    EXPECT_NEAR(LogOfMass(mass), std::log(exact), 2e-7);
    std::shuffle(row.begin(), row.end(), random);
    EXPECT_EQ(TotalMass(row, max), mass);
  }
}

TEST(TotalMass, HoldsTheLargestVocabulary) {
  const std::vector<float> row(1 << 20, 0.5f);
  EXPECT_EQ(TotalMass(row, 0.5f), Mass{1} << 60);
}

TEST(TopTokens, EqualsASort) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> row = RandomRow(1 + random() % 2000, 3, random);
    if (round % 2 == 0) {
      for (float& x : row) x = std::round(x);
    }
    if (round % 5 == 0) std::sort(row.begin(), row.end());
    std::vector<TokenId> expected(row.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(),
                     [&](TokenId a, TokenId b) { return row[a] > row[b]; });
    const int32_t count = static_cast<int32_t>(random() % 30);
    expected.resize(std::min(expected.size(), static_cast<size_t>(count)));
    std::vector<TokenId> ids;
    TopTokens(row, count, &ids);
    EXPECT_EQ(ids, expected) << "round " << round;
  }
}

TEST(DynamicTemperatureOf, IsTheLowestIfOneTokenHasAllOfTheMass) {
  SamplingParams params;
  params.temperature = 1;
  params.dynatemp_range = 0.5f;
  // The distance of the last logit from the largest one is no finite float.
  EXPECT_EQ(DynamicTemperatureOf(std::vector<float>{3e38f, 0, -3e38f}, 3e38f, params), 0.5f);
}

TEST(ApplyMask, ForbidsTokensWithoutABitAndBeyondTheMask) {
  std::vector<float> row(70, 1.0f);
  ApplyMask(std::vector<uint32_t>{0x80000001u, ~0u}, row);
  for (size_t t = 0; t < row.size(); ++t) {
    const bool allowed = t == 0 || (t >= 31 && t < 64);
    EXPECT_EQ(row[t], allowed ? 1.0f : -INFINITY) << t;
  }
}

}  // namespace
}  // namespace tokamak::sampling
