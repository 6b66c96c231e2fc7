#include "engine/drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace tokamak {
namespace {

using Counts = std::vector<int32_t>;

constexpr int32_t kWhole = 1 << 20;  // tokens: the whole prompt

std::vector<TokenId> Propose(const std::vector<ContentId>& text, int32_t count) {
  TextDrafter drafter({.most = count, .min_match = 2, .max_match = 5});
  MatchAcceptance all(100);
  drafter.Follow(text, kWhole, &all);
  return drafter.Propose(text, count);
}

TEST(TextDrafter, ProposesWhatFollowedTheMatch) {
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(Propose({1, 2, 3, 4, 9, 1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(Propose({1, 2, 3, 4, 9, 1, 2}, 9), (Tokens{3, 4, 9, 1, 2, 3, 4, 9, 1}));
  EXPECT_EQ(Propose({7, 7, 7}, 3), (Tokens{7, 7, 7}));
  EXPECT_EQ(Propose({1, 2, 3}, 2), (Tokens{3, 3}));  // no match
}

TEST(TextDrafter, TakesALongPromptInParts) {
  std::vector<ContentId> text(10000);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<ContentId>(i % 7000);
  TextDrafter drafter({.most = 4, .min_match = 2, .max_match = 5});
  MatchAcceptance all(100);
  int calls = 0;
  for (; drafter.Chances(4, all).empty() && calls < 10; ++calls) {
    // No match in a part of the text counts.
    EXPECT_EQ(drafter.Propose(text, 1), (std::vector<TokenId>{(10000 - 1 + calls) % 7000}));
    text.push_back(static_cast<ContentId>(text.size() % 7000));
    EXPECT_EQ(drafter.Follow(text, 4096, &all), calls < 2 ? 4096 : 10003 - 2 * 4096);
  }
  text.push_back(static_cast<ContentId>(text.size() % 7000));
  EXPECT_EQ(drafter.Follow(text, 0, &all), 0);  // no longer part of the prompt
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(drafter.Propose(text, 2), (std::vector<TokenId>{3004, 3005}));
}

TEST(TextDrafter, LearnsHowOftenMatchesGoOn) {
  // "1 2" is followed by 3 in the prompt, and then by something else each time.
  std::vector<ContentId> text = {1, 2, 3};
  TextDrafter drafter({.most = 4, .min_match = 2, .max_match = 5});
  MatchAcceptance all(100);
  drafter.Follow(text, kWhole, &all);
  EXPECT_TRUE(drafter.Chances(4, all).empty());
  const auto chance_after = [&](ContentId next) {
    for (const ContentId id : {ContentId{1}, ContentId{2}}) text.push_back(id);
    drafter.Follow(text, kWhole, &all);
    const double chance = drafter.Chances(1, all).at(0);
    text.push_back(next);
    return chance;
  };
  const double first = chance_after(100);
  for (ContentId next = 101; next < 120; ++next) chance_after(next);
  EXPECT_LT(chance_after(120), first / 3);
  EXPECT_LT(all.Estimate(2, 0.5), 0.1);
  EXPECT_NEAR(all.Estimate(6, 0.5), 0.5, 1e-9);  // no such match has been seen
}

TEST(TextDrafter, ChancesFallWithEveryDraft) {
  std::vector<ContentId> text;
  for (int i = 0; i < 30; ++i) text.push_back(i % 10);
  TextDrafter drafter({.most = 8, .min_match = 2, .max_match = 5});
  MatchAcceptance all(100);
  drafter.Follow(text, kWhole, &all);
  const std::vector<double> chances = drafter.Chances(8, all);
  ASSERT_EQ(chances.size(), 8u);
  EXPECT_LE(chances[0], 1);
  for (size_t i = 1; i < chances.size(); ++i) EXPECT_LT(chances[i], chances[i - 1]);
}

// "1 2" always goes on with 3, and "1 2 3" always with something new: the first draft has been
// right each time, and the second one never.
TEST(TextDrafter, EndsBeforeADraftOfLessProbability) {
  std::vector<size_t> counts;
  for (const float least : {0.0f, 0.5f, 0.999f}) {
    TextDrafter drafter({.most = 4, .min_match = 2, .max_match = 5, .min_probability = least});
    MatchAcceptance all(100);
    std::vector<ContentId> text;
    const auto add = [&](std::initializer_list<ContentId> tokens) {
      text.insert(text.end(), tokens);
      drafter.Follow(text, kWhole, &all);
    };
    add({1, 2, 3});
    for (ContentId next = 100; next < 130; ++next) add({next, 1, 2, 3});
    add({130, 1, 2});
    EXPECT_EQ(drafter.Propose(text, 2), (std::vector<TokenId>{3, 130}));
    counts.push_back(drafter.Chances(4, all).size());
  }
  EXPECT_EQ(counts, (std::vector<size_t>{4, 1, 0}));
}

TEST(MatchAcceptance, EstimatesTheShareOfEachLength) {
  std::mt19937 random(1);
  MatchAcceptance acceptance(200);
  for (int i = 0; i < 2000; ++i) {
    acceptance.Note(2, random() % 4 == 0);
    acceptance.Note(30, random() % 16 != 0);
  }
  EXPECT_NEAR(acceptance.Estimate(2, 0.5), 0.25, 0.1);
  EXPECT_NEAR(acceptance.Estimate(25, 0.5), 0.94, 0.06);
  for (int i = 0; i < 1000; ++i) acceptance.Note(2, true);  // the text has changed
  EXPECT_GT(acceptance.Estimate(2, 0.5), 0.95);
}

TEST(ChooseDrafts, GivesNoneWhereTheyDoNotPay) {
  const std::vector<std::vector<double>> chances = {{0.9, 0.8}, {0.5, 0.2}};
  EXPECT_EQ(ChooseDrafts(chances, 8, 2, [](int32_t n) { return 2.0 + n; }), (Counts{0, 0}));
  EXPECT_EQ(ChooseDrafts(chances, 8, 2, [](int32_t) { return 0.0; }), (Counts{0, 0}));
  EXPECT_EQ(ChooseDrafts(chances, 8, 2, [](int32_t) { return 1.0; }), (Counts{2, 2}));
  EXPECT_EQ(ChooseDrafts(chances, 0, 2, [](int32_t) { return 1.0; }), (Counts{0, 0}));
  EXPECT_EQ(ChooseDrafts(chances, 3, 2, [](int32_t) { return 1.0; }), (Counts{2, 1}));
}

TEST(ChooseDrafts, AsksForMoreWhereTimesAreUncertain) {
  const std::vector<std::vector<double>> chances = {{0.5}};
  const auto seconds = [](int32_t n) { return 1 + 0.2 * n; };  // a quarter faster with a draft
  EXPECT_EQ(ChooseDrafts(chances, 8, 1, seconds), (Counts{1}));
  EXPECT_EQ(ChooseDrafts(chances, 8, 1, seconds, 0.1), (Counts{1}));
  EXPECT_EQ(ChooseDrafts(chances, 8, 1, seconds, 0.3), (Counts{0}));
}

TEST(ChooseDrafts, IsAsFastAsTheBestOfAllChoices) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto uniform = [&] { return static_cast<double>(random() % 1000) / 1000; };
    std::vector<std::vector<double>> chances(1 + random() % 3);
    for (auto& row : chances) {
      double chance = 1;
      for (uint32_t i = 0; i < 1 + random() % 3; ++i) row.push_back(chance *= uniform());
    }
    const auto decodes = static_cast<int32_t>(chances.size() + random() % 3);
    std::vector<double> times = {1 + 10 * uniform()};
    for (int i = 0; i < 9; ++i) times.push_back(times.back() + (random() % 3 == 0) * 3 * uniform());
    const auto rate = [&](const Counts& counts) {
      double tokens = decodes;
      int32_t num_drafts = 0;
      for (size_t row = 0; row < counts.size(); ++row) {
        num_drafts += counts[row];
        for (int32_t i = 0; i < counts[row]; ++i) tokens += chances[row][static_cast<size_t>(i)];
      }
      return tokens / times.at(static_cast<size_t>(num_drafts));
    };
    double best = 0;
    Counts counts(chances.size());
    for (int code = 0; code < 64; ++code) {  // all counts up to 3 of up to 3 rows
      bool possible = true;
      for (size_t row = 0; row < 3; ++row) {
        const int32_t count = code >> (2 * row) & 3;
        if (row < counts.size()) counts[row] = count;
        possible &= count <= (row < counts.size() ? static_cast<int>(chances[row].size()) : 0);
      }
      const int32_t sum = std::accumulate(counts.begin(), counts.end(), 0);
      if (possible && sum <= 8) best = std::max(best, rate(counts));
    }
    const Counts chosen = ChooseDrafts(chances, 8, decodes,
                                       [&](int32_t n) { return times.at(static_cast<size_t>(n)); });
    EXPECT_GE(rate(chosen), best / 1.061);
    EXPECT_LE(rate(chosen), best * 1.000001);
  }
}

}  // namespace
}  // namespace tokamak
