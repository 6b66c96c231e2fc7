#include "ops/sampling/draw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/testing/sanitizers.h"
#include "ops/sampling/logits_row.h"

namespace tokamak::sampling {
namespace {

std::vector<float> RandomRow(size_t size, float scale, std::mt19937& random) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

// By definition: without skips or bounds.
TokenId DrawByDefinition(const std::vector<float>& tempered, const DrawKey& key) {
  double best = -INFINITY;
  TokenId token = -1;
  for (size_t t = 0; t < tempered.size(); ++t) {
    const double score = static_cast<double>(tempered[t]) +
                         Gumbel(DrawWords(key, static_cast<uint32_t>(t / 4))[t % 4]);
    if (score > best) {
      best = score;
      token = static_cast<TokenId>(t);
    }
  }
  return token;
}

TEST(DrawFromRow, EqualsTheDefinition) {
  std::mt19937 random(4);
  for (int round = 0; round < testing::Fewer(1500); ++round) {
    const float scales[] = {1e-4f, 0.5f, 3.0f, 10.0f, 60.0f};
    std::vector<float> row = RandomRow(1 + random() % 3000, scales[random() % 5], random);
    for (float& x : row) {
      if (random() % 50 == 0) x = -INFINITY;
    }
    row[random() % row.size()] = 0.25f;
    std::vector<float> tempered(row.size());
    Temper(row, Scan(row).max, 1.0f, tempered);
    const DrawKey key{.seed = random(), .choice = round % 3, .position = round};
    ASSERT_EQ(DrawFromRow(tempered, key), DrawByDefinition(tempered, key)) << "round " << round;
    std::vector<Candidate> all;
    for (size_t t = 0; t < row.size(); ++t) {
      if (std::isfinite(row[t])) all.push_back({static_cast<TokenId>(t), tempered[t]});
    }
    ASSERT_EQ(DrawFromCandidates(all, key), DrawByDefinition(tempered, key)) << "round " << round;
  }
}

// Many unlikely tokens together win often, although each is far below the best.
TEST(DrawFromRow, UnlikelyTokensAreDrawnAsOftenAsTheirProbability) {
  constexpr size_t kTokens = testing::Fewer(120'000);
  std::vector<float> tempered(kTokens, std::log(0.27f / kTokens));
  tempered[1000] = 0;
  int far = 0;
  for (int position = 0; position < 60; ++position) {
    const DrawKey key{.seed = 5, .choice = 0, .position = position};
    const TokenId drawn = DrawFromRow(tempered, key);
    ASSERT_EQ(drawn, DrawByDefinition(tempered, key));
    far += drawn != 1000 ? 1 : 0;
  }
  EXPECT_GT(far, 3);  // a share of 0.21 is expected
}

}  // namespace
}  // namespace tokamak::sampling
