#include "engine/drafts.h"

#include <gtest/gtest.h>

#include <vector>

namespace tokamak {
namespace {

using Tokens = std::vector<TokenId>;

Tokens Propose(const std::vector<ContentId>& text, int32_t most, int32_t min_match = 2,
               int32_t max_match = 3) {
  return ProposeFromText(text, {.most = most, .min_match = min_match, .max_match = max_match},
                         most);
}

TEST(ProposeFromText, RepeatsWhatFollowedTheSameTokens) {
  EXPECT_EQ(Propose({1, 2, 3, 4, 9, 1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(Propose({1, 2, 3, 4, 9, 1, 2}, 9), (Tokens{3, 4, 9, 1, 2, 3, 4, 9, 1}));
  EXPECT_EQ(Propose({7, 7, 7}, 3), (Tokens{7, 7, 7}));
}

TEST(ProposeFromText, PrefersTheLongestMatchAndThenTheLatest) {
  EXPECT_EQ(Propose({5, 1, 2, 30, 6, 1, 2, 40, 5, 1, 2}, 1), Tokens{30});
  EXPECT_EQ(Propose({1, 2, 30, 1, 2, 40, 1, 2}, 1), Tokens{40});
  // Tokens that match beyond max_match decide nothing.
  EXPECT_EQ(Propose({8, 5, 1, 2, 30, 5, 1, 2, 40, 8, 5, 1, 2}, 1), Tokens{40});
}

TEST(ProposeFromText, ProposesNothingWithoutAMatch) {
  EXPECT_EQ(Propose({}, 4), Tokens{});
  EXPECT_EQ(Propose({1}, 4), Tokens{});
  EXPECT_EQ(Propose({1, 2}, 4), Tokens{});
  EXPECT_EQ(Propose({1, 2, 3, 2}, 4), Tokens{});
  EXPECT_EQ(Propose({1, 2, 3, 2}, 4, 1), (Tokens{3, 2, 3, 2}));
  EXPECT_EQ(Propose({1, 2, 1, 2}, 0), Tokens{});
}

// One stream; each draft makes the step longer by `cost` of its time without any.
int32_t BestCount(DraftHistory& history, double cost) {
  return history.BestCount(8, 1, [cost](int32_t n) { return 1 + cost * n; });
}

TEST(DraftHistory, ChoosesTheCountThatPays) {
  DraftHistory history;
  EXPECT_EQ(BestCount(history, 0), 8);
  EXPECT_EQ(BestCount(history, 0.9), 0);
  for (int i = 0; i < 50; ++i) history.Note(8, 8);
  EXPECT_EQ(BestCount(history, 0.9), 8);
  EXPECT_EQ(BestCount(history, 1.1), 0);
  for (int i = 0; i < 50; ++i) history.Note(0, 8);
  EXPECT_EQ(BestCount(history, 0.1), 0);
  EXPECT_EQ(BestCount(history, 0.0), 8);
}

TEST(DraftHistory, TriesAgainAfterManyStepsWithoutDrafts) {
  DraftHistory history;
  for (int i = 0; i < 50; ++i) history.Note(0, 8);
  int steps = 0;
  while (BestCount(history, 0.1) == 0 && steps < 1000) ++steps;
  EXPECT_GT(steps, 3);
  EXPECT_LT(steps, 200);
}

TEST(DraftHistory, ManyStreamsNeedMoreThanOne) {
  DraftHistory history;
  const auto best = [&](int32_t streams) {
    return history.BestCount(4, streams, [&](int32_t n) { return 1.0 * streams + 0.5 * n; });
  };
  EXPECT_GT(best(1), 0);
  EXPECT_GT(best(64), 0);  // a token costs the same with and without drafts
  const auto best_of_flat = [&](int32_t streams) {
    return history.BestCount(4, streams, [&](int32_t n) { return 10.0 + streams + 5.0 * n; });
  };
  EXPECT_EQ(best_of_flat(64), 0);
}

}  // namespace
}  // namespace tokamak
