#include "ops/sampling/filters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/testing/sanitizers.h"
#include "ops/sampling/logits_row.h"

namespace tokamak::sampling {
namespace {

std::vector<TokenId> Survivors(const std::vector<float>& row, const SamplingParams& spec) {
  std::vector<float> tempered(row.size());
  Temper(row, Scan(row).max, spec.temperature, tempered);
  Filter filter;
  std::vector<TokenId> ids;
  for (const Candidate& c : filter.Apply(tempered, spec, DrawKey())) ids.push_back(c.id);
  return ids;
}

TEST(Filter, KeepsWhatNumpyKeeps) {
  std::ifstream file(TOKAMAK_SOURCE_DIR "/tests/golden/sampling.txt");
  std::string parameters;
  std::string survivors;
  int cases = 0;
  while (std::getline(file, parameters) && std::getline(file, survivors)) {
    SCOPED_TRACE(parameters.substr(0, 60));
    std::istringstream in(parameters);
    SamplingParams spec;
    std::string colon;
    in >> spec.temperature >> spec.top_k >> spec.typical_p >> spec.top_p >> spec.min_p >> colon;
    std::vector<float> row;
    for (int thousandths = 0; in >> thousandths;) {
      row.push_back(static_cast<float>(thousandths) / 1000.0f);
    }
    std::vector<TokenId> expected;
    std::istringstream ids(survivors);
    for (TokenId id = 0; ids >> id;) expected.push_back(id);
    EXPECT_EQ(Survivors(row, spec), expected);
    ++cases;
  }
  EXPECT_EQ(cases, 400);
}

// Sorts all tokens and cuts the list, in exact integer masses.
std::vector<TokenId> BySorting(const std::vector<float>& tempered, const SamplingParams& spec) {
  std::vector<TokenId> ids;
  for (size_t t = 0; t < tempered.size(); ++t) {
    if (std::isfinite(tempered[t])) ids.push_back(static_cast<TokenId>(t));
  }
  const auto y = [&](TokenId id) { return tempered[static_cast<size_t>(id)]; };
  const auto cut = [&](float part, auto key) {
    std::erase_if(ids, [&](TokenId id) { return y(id) <= kMassless || MassOf(y(id)) == 0; });
    std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return key(a) < key(b); });
    Mass total = 0;
    for (const TokenId id : ids) total += MassOf(y(id));
    Mass sum = 0;
    size_t count = 0;
    while (sum == 0 ||
           static_cast<double>(sum) < static_cast<double>(part) * static_cast<double>(total)) {
      sum += MassOf(y(ids[count++]));
    }
    ids.resize(count);
    std::sort(ids.begin(), ids.end());
  };
  if (spec.top_k > 0) {
    std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return y(a) > y(b); });
    ids.resize(std::min(ids.size(), static_cast<size_t>(spec.top_k)));
    std::sort(ids.begin(), ids.end());
  }
  if (spec.typical_p < 1) {
    Mass total = 0;
    Mass weighted = 0;
    for (const TokenId id : ids) {
      if (y(id) <= kMassless) continue;
      total += MassOf(y(id));
      weighted +=
          static_cast<Mass>(static_cast<double>(MassOf(y(id))) * -static_cast<double>(y(id)));
    }
    const double mean = -static_cast<double>(weighted) / static_cast<double>(total);
    cut(spec.typical_p, [&](TokenId id) { return std::fabs(static_cast<double>(y(id)) - mean); });
  }
  if (spec.top_p < 1) cut(spec.top_p, [&](TokenId id) { return -static_cast<double>(y(id)); });
  if (spec.min_p > 0) {
    double best = -INFINITY;
    for (const TokenId id : ids) best = std::max<double>(best, y(id));
    const double floor = best + ExactLog(spec.min_p);
    std::erase_if(ids, [&](TokenId id) { return static_cast<double>(y(id)) < floor; });
  }
  if (spec.xtc_probability > 0) {
    std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return y(a) > y(b); });
    double total = 0;
    for (const TokenId id : ids) total += static_cast<double>(MassOf(y(id)));
    size_t last = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (static_cast<double>(MassOf(y(ids[i]))) >= spec.xtc_threshold * total) last = i;
    }
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(last));
    std::sort(ids.begin(), ids.end());
  }
  return ids;
}

TEST(Filter, EqualsAFullSort) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> unit(0, 1);
  for (int round = 0; round < testing::Fewer(600); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const size_t size = round % 20 == 0 ? 50'000 : 1 + random() % 3000;
    const float scales[] = {1e-6f, 0.3f, 2.0f, 8.0f, 1e4f};
    std::normal_distribution<float> normal(0, scales[random() % 5]);
    std::vector<float> row(size);
    const bool coarse = random() % 3 == 0;
    for (float& x : row) {
      x = normal(random);
      if (coarse) x = std::round(x * 2) / 2;
      if (random() % 16 == 0) x = -INFINITY;
    }
    row[random() % size] = 1;
    SamplingParams spec;
    const float temperatures[] = {1e-6f, 0.7f, 1.0f, 2.0f, 1e6f};
    spec.temperature = temperatures[random() % 5];
    const uint32_t which = random() % 31 + 1;
    if (which & 1) spec.top_k = 1 + static_cast<int32_t>(random() % (size + 2));
    if (which & 2) spec.typical_p = unit(random);
    if (which & 4) spec.top_p = round % 2 == 0 ? unit(random) : 1 - unit(random) * 1e-5f;
    if (which & 8) spec.min_p = unit(random) * unit(random);
    if (which & 16) spec.xtc_probability = 1;
    spec.xtc_threshold = unit(random) * unit(random) / 2;
    std::vector<float> tempered(size);
    Temper(row, Scan(row).max, spec.temperature, tempered);
    ASSERT_EQ(Survivors(row, spec), BySorting(tempered, spec));
  }
}

TEST(Filter, TheSmallestTopPKeepsTheBestAlone) {
  SamplingParams spec;
  spec.top_p = 1e-30f;
  EXPECT_EQ(Survivors({0, 3, 1, 3, 2}, spec), std::vector<TokenId>{1});
  spec.top_k = 2;
  EXPECT_EQ(Survivors({0, 3, 1, 3, 2}, spec), std::vector<TokenId>{1});
}

TEST(Filter, TopKTakesEqualTokensByTheirIds) {
  SamplingParams spec;
  spec.top_k = 3;
  EXPECT_EQ(Survivors({2, 5, 2, 2, 5, 2}, spec), (std::vector<TokenId>{0, 1, 4}));
}

TEST(Filter, XtcDropsTopChoicesInItsPartOfTheDraws) {
  const std::vector<float> row = {0, 3, 1, 3.5f, 2};
  SamplingParams spec;
  spec.xtc_probability = 0.3f;
  std::vector<float> tempered(row.size());
  Temper(row, Scan(row).max, 1, tempered);
  Filter filter;
  int dropped = 0;
  for (int32_t position = 0; position < 10'000; ++position) {
    const DrawKey key = {.seed = 8, .choice = 2, .position = position};
    const auto left = filter.Apply(tempered, spec, key);
    const bool drops = left.size() == 3;  // three tokens reach 0.1
    EXPECT_EQ(drops, DropsTopChoices(spec, key));
    EXPECT_EQ(left.size(), drops ? 3u : 5u);
    dropped += drops ? 1 : 0;
  }
  EXPECT_NEAR(dropped, 3000, 4 * std::sqrt(10'000 * 0.3 * 0.7));
}

TEST(Filter, TypicalMayDropTheMostLikely) {
  // One token of probability 0.2 and eighty of 0.01: the entropy (4.0) is nearer to the information
  // of the small ones (4.6) than to that of the large one (1.6).
  std::vector<float> row(81, std::log(0.01f));
  row[7] = std::log(0.2f);
  SamplingParams spec;
  spec.typical_p = 0.295f;
  const std::vector<TokenId> ids = Survivors(row, spec);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 7), 0);
  EXPECT_EQ(ids.size(), 30u);
  // min_p then counts from the best remaining token.
  spec.min_p = 1.0f;
  EXPECT_EQ(Survivors(row, spec), ids);
}

}  // namespace
}  // namespace tokamak::sampling
