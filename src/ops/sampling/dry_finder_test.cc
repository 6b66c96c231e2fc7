#include "ops/sampling/dry_finder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace tokamak::sampling {
namespace {

// The definition, letter by letter: each token that follows an earlier place where the text's last
// letters stand too gets the length of the longest such ending.
std::map<TokenId, int32_t> Expected(const std::string& text, int32_t longest) {
  std::map<TokenId, int32_t> lengths;
  for (size_t next = 1; next < text.size(); ++next) {
    int32_t length = 0;
    for (size_t size = 1; size <= next; ++size) {
      if (text.substr(next - size, size) == text.substr(text.size() - size)) {
        length = static_cast<int32_t>(size);
      }
    }
    int32_t& most = lengths[text[next]];
    most = std::max(most, std::min(length, longest));
  }
  return lengths;
}

TEST(DryFinder, FindsEveryTokenThatFollowsARepeat) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const auto letters = 1 + random() % 3;
    for (size_t size = random() % 60; text.size() < size;) {
      if (!text.empty() && random() % 3 == 0) {
        text += text.substr(random() % text.size(), random() % 20);
      } else {
        text += static_cast<char>('a' + random() % letters);
      }
    }
    SamplingParams params;
    params.dry_multiplier = 1;
    params.dry_base = round % 2 == 0 ? 1.0f : 1e20f;  // the exponent is at most 1
    params.dry_allowed_length = static_cast<int32_t>(random() % 5);
    params.dry_penalty_last_n = round % 3 == 0 ? -1 : static_cast<int32_t>(random() % 40);
    DryFinder finder;
    finder.Reset(params);
    const std::vector<TokenId> history(text.begin(), text.end());
    std::vector<DryRepeat> repeats;
    finder.FindRepeats(history, &repeats);
    std::map<TokenId, int32_t> actual, expected;
    for (const DryRepeat& repeat : repeats) actual[repeat.token] = repeat.length;
    if (params.dry_penalty_last_n >= 0) {
      const auto window = static_cast<size_t>(params.dry_penalty_last_n);
      text = text.substr(text.size() - std::min(text.size(), window));
    }
    const int32_t longest = LongestDryMatch(params.dry_base, params.dry_allowed_length);
    for (const auto& [token, length] : Expected(text, longest)) {
      if (length >= params.dry_allowed_length) expected[token] = length;
    }
    EXPECT_EQ(actual, expected) << text;
  }
}

TEST(DryFinder, StopsAtTheNearestBreaker) {
  const auto repeats_of = [](std::vector<TokenId> history) {
    SamplingParams params;
    params.dry_multiplier = 1;
    params.dry_allowed_length = 1;
    params.dry_breaker_tokens = {40};
    params.dry_breaker_sequences = {{7, 8}, {5, 6}, {5, 6, 1}, {5, 9}};
    DryFinder finder;
    finder.Reset(params);
    std::vector<DryRepeat> repeats;
    finder.FindRepeats(history, &repeats);
    std::map<TokenId, int32_t> lengths;
    for (const DryRepeat& repeat : repeats) lengths[repeat.token] = repeat.length;
    return lengths;
  };
  using Lengths = std::map<TokenId, int32_t>;
  EXPECT_EQ(repeats_of({1, 2, 3, 4, 1, 2, 3}), (Lengths{{4, 3}}));
  EXPECT_EQ(repeats_of({1, 40, 3, 4, 1, 40, 3}), (Lengths{{4, 1}}));
  EXPECT_EQ(repeats_of({1, 2, 3, 40, 1, 2, 3}), Lengths{}) << "a breaker is never penalized";
  EXPECT_EQ(repeats_of({5, 6, 3, 4, 5, 6, 3}), (Lengths{{4, 1}}));
  EXPECT_EQ(repeats_of({5, 6, 1, 4, 5, 6, 1}), Lengths{}) << "the longest one counts";
  EXPECT_EQ(repeats_of({5, 7, 3, 4, 5, 7, 3}), (Lengths{{4, 3}}));
}

TEST(DryPenalty, IsThePowerAndFinite) {
  for (const float base : {1.0f, 1.000002f, 1.1f, 1.75f, 30.0f, 3e38f}) {
    const int32_t longest = LongestDryMatch(base, 0);
    for (int32_t exponent = 0; exponent <= longest; ++exponent) {
      const double expected = 0.5 * std::pow(double{base}, exponent);
      ASSERT_TRUE(std::isfinite(DryPenalty(0.5f, base, exponent)));
      ASSERT_NEAR(DryPenalty(0.5f, base, exponent), expected, 1e-6 * expected)
          << base << " " << exponent;
    }
  }
  EXPECT_TRUE(std::isfinite(DryPenalty(3e38f, 1.75f, LongestDryMatch(1.75f, 0))));
}

}  // namespace
}  // namespace tokamak::sampling
