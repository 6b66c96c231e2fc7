#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tokamak {
namespace {

using Text = std::vector<ContentId>;

PromptLookup::Match Find(const Text& text, int32_t min_match, int32_t max_match) {
  PromptLookup lookup(min_match, max_match);
  lookup.Extend(text);
  EXPECT_EQ(lookup.size(), static_cast<int32_t>(text.size()));
  return lookup.match();
}

// Compares the end of the text with every place in it.
PromptLookup::Match FindByScan(const Text& text, int32_t min_match, int32_t max_match) {
  const auto size = static_cast<int32_t>(text.size());
  const auto same_before = [&](int32_t end) {
    int32_t length = 0;
    while (length < end && text[end - 1 - length] == text[size - 1 - length]) ++length;
    return length;
  };
  PromptLookup::Match best;
  int32_t best_length = min_match - 1;
  for (int32_t end = size - 1; end >= 1; --end) {
    const int32_t length = same_before(end);
    if (std::min(length, max_match) <= best_length) continue;
    best_length = std::min(length, max_match);
    best = {end, std::min(length, PromptLookup::kMaxLength)};
  }
  return best;
}

TEST(PromptLookup, FindsWhatFollowedTheSameTokens) {
  const PromptLookup::Match match = Find({1, 2, 3, 4, 9, 1, 2}, 2, 5);
  EXPECT_EQ(match.end, 2);
  EXPECT_EQ(match.length, 2);
  EXPECT_EQ(Find({7, 7, 7}, 2, 5).end, 2);
  // The longest match, and then the latest.
  EXPECT_EQ(Find({5, 1, 2, 30, 6, 1, 2, 40, 5, 1, 2}, 2, 3).end, 3);
  EXPECT_EQ(Find({1, 2, 30, 1, 2, 40, 1, 2}, 2, 3).end, 5);
  // Tokens that match beyond max_match decide nothing, but count as the match's length.
  const PromptLookup::Match latest = Find({8, 5, 1, 2, 30, 5, 1, 2, 40, 8, 5, 1, 2}, 2, 3);
  EXPECT_EQ(latest.end, 8);
  EXPECT_EQ(latest.length, 3);
}

TEST(PromptLookup, FindsNothingWithoutAMatch) {
  for (const Text& text : {Text{}, Text{1}, Text{1, 2}, Text{1, 2, 3, 2}}) {
    EXPECT_EQ(Find(text, 2, 5).end, 0);
  }
  EXPECT_EQ(Find({1, 2, 3, 2}, 1, 5).end, 2);
}

TEST(PromptLookup, EqualsAScanOfTheText) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
    const int32_t min_match = 1 + below(4);
    const int32_t max_match = min_match + below(8);
    const uint32_t vocab = 2 + random() % 30;
    PromptLookup lookup(min_match, max_match);
    Text text;
    while (text.size() < 400) {
      if (text.size() > 20 && below(8) == 0) {  // repeats a part
        const size_t from = random() % (text.size() - 10);
        for (size_t i = 0; i < 10; ++i) text.push_back(text[from + i]);
      }
      text.push_back(below(vocab));
      if (below(3) == 0) continue;  // several at once
      lookup.Extend(text);
      const PromptLookup::Match expected = FindByScan(text, min_match, max_match);
      ASSERT_EQ(lookup.match().end, expected.end) << text.size();
      ASSERT_EQ(lookup.match().length, expected.length) << text.size();
    }
  }
}

}  // namespace
}  // namespace tokamak
