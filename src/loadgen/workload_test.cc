#include "loadgen/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace tokamak::loadgen {
namespace {

constexpr int kDraws = 20'000;

// The largest distance between the empirical and the exact distribution (Kolmogorov and Smirnov),
// times the square root of the number of draws. If they are equal it exceeds 1.95 once in a
// thousand times. The seeds are fixed, so the result is too.
double Distance(std::vector<double> draws, const std::function<double(double)>& cdf) {
  std::sort(draws.begin(), draws.end());
  const auto n = static_cast<double>(draws.size());
  double worst = 0;
  for (size_t i = 0; i < draws.size(); ++i) {
    const double exact = cdf(draws[i]);
    const auto rank = static_cast<double>(i);
    worst = std::max({worst, exact - rank / n, (rank + 1) / n - exact});
  }
  return worst * std::sqrt(n);
}
constexpr double kTooFar = 1.95;

std::vector<double> Gaps(double rate, double burstiness) {
  Arrivals arrivals(rate, burstiness, /*seed=*/7, /*run=*/0);
  std::vector<double> gaps;
  for (int i = 0; i < kDraws; ++i) gaps.push_back(arrivals.NextGap());
  return gaps;
}

TEST(Arrivals, GapsOfAPoissonProcessAreExponential) {
  const double rate = 4;
  const auto cdf = [rate](double x) { return 1 - std::exp(-rate * x); };
  EXPECT_LT(Distance(Gaps(rate, 1), cdf), kTooFar);
  // The check can fail: it does for a process that is a tenth faster.
  EXPECT_GT(Distance(Gaps(rate * 1.1, 1), cdf), kTooFar);
}

TEST(Arrivals, EvenGapsAreErlangDistributed) {
  const double rate = 10;  // shape 4, so stages of 40 per second: 1 - e^-λx Σ (λx)^k / k!
  const auto cdf = [](double x) {
    const double y = 40 * x;
    return 1 - std::exp(-y) * (1 + y + y * y / 2 + y * y * y / 6);
  };
  EXPECT_LT(Distance(Gaps(rate, 4), cdf), kTooFar);
}

TEST(Arrivals, BurstsAreGammaDistributed) {
  const double rate = 2;  // shape 1/2, scale 1: a squared normal
  const auto cdf = [](double x) { return std::erf(std::sqrt(x)); };
  EXPECT_LT(Distance(Gaps(rate, 0.5), cdf), kTooFar);
}

TEST(Arrivals, CountsOfAPoissonProcessHaveItsVariance) {
  // In windows of 1 s at 5 per second, mean and variance are both 5; the standard error of the
  // variance over 10,000 windows is about 0.07.
  Arrivals arrivals(5, 1, /*seed=*/3, /*run=*/0);
  std::vector<double> counts(10'000, 0.0);
  for (double at = arrivals.NextGap(); at < 10'000; at += arrivals.NextGap()) {
    ++counts[static_cast<size_t>(at)];
  }
  double mean = 0, variance = 0;
  for (const double count : counts) mean += count / 10'000;
  for (const double count : counts) variance += (count - mean) * (count - mean) / 10'000;
  EXPECT_NEAR(mean, 5, 0.1);
  EXPECT_NEAR(variance, 5, 0.3);
}

std::vector<double> Lengths(const char* text) {
  const auto length = LengthDistribution::Parse(text);
  EXPECT_TRUE(length.ok()) << text;
  Random random(11);
  std::vector<double> drawn;
  for (int i = 0; i < kDraws; ++i) drawn.push_back(length->Draw(random));
  return drawn;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}
double Deviation(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(LengthDistribution, DrawsFromItsDistribution) {
  EXPECT_EQ(Deviation(Lengths("7")), 0);
  EXPECT_EQ(Mean(Lengths("7")), 7);
  const auto uniform = Lengths("10:19");
  EXPECT_EQ(*std::min_element(uniform.begin(), uniform.end()), 10);
  EXPECT_EQ(*std::max_element(uniform.begin(), uniform.end()), 19);
  EXPECT_NEAR(Mean(uniform), 14.5, 0.1);
  EXPECT_EQ(Lengths("uniform:10:19"), uniform);
  const auto normal = Lengths("normal:500:50");
  EXPECT_NEAR(Mean(normal), 500, 2);
  EXPECT_NEAR(Deviation(normal), 50, 1.5);
  const auto lognormal = Lengths("lognormal:400:300");
  EXPECT_NEAR(Mean(lognormal), 400, 10);
  EXPECT_NEAR(Deviation(lognormal), 300, 25);
  // Half of the draws are below exp(mu) = 400 / sqrt(1 + (300/400)^2) = 320.
  EXPECT_NEAR(static_cast<double>(std::count_if(lognormal.begin(), lognormal.end(),
                                                [](double v) { return v <= 320; })),
              kDraws / 2, 250);
  const auto cut = Lengths("normal:1:1000000");
  EXPECT_EQ(*std::min_element(cut.begin(), cut.end()), 1);
  EXPECT_EQ(*std::max_element(cut.begin(), cut.end()), LengthDistribution::kMax);
}

TEST(LengthDistribution, RefusesOtherForms) {
  for (const char* text :
       {"", "0", "9:3", "1:2:3", "-1", "1.5", "x", "normal:5", "normal:0:1", "lognormal:5:-1",
        "normal:nan:1", "normal:inf:1", "uniform:1:2x", "1000001", "uniform", "5:", "gauss:1:2"}) {
    EXPECT_EQ(LengthDistribution::Parse(text).status().code(), StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(Workload, TheSameSeedMakesTheSameConversationsInAnyOrder) {
  WorkloadOptions options;
  options.turns = *LengthDistribution::Parse("1:5");
  options.shared_prefix = 10;
  options.prefix_groups = 3;
  const Workload workload(options, 0), again(options, 0), other_run(options, 1);
  options.seed = 1;
  const Workload other_seed(options, 0);
  const std::string text = workload.Make(5).turns.front().text;
  EXPECT_EQ(again.Make(4).id, 4);
  EXPECT_EQ(again.Make(5).turns.front().text, text);
  EXPECT_EQ(again.Make(5).turns.size(), workload.Make(5).turns.size());
  // Another load of the same command has different words, which no cache knows.
  EXPECT_NE(other_run.Make(5).turns.front().text, text);
  EXPECT_NE(other_seed.Make(5).turns.front().text, text);
  EXPECT_NE(workload.Make(6).turns.front().text, text);
}

// The first `count` words.
std::string Words(const std::string& text, int count) {
  size_t end = 0;
  while (count-- > 0) end = text.find(' ', end) + 1;
  return text.substr(0, end);
}

TEST(Workload, GroupsShareTheirPrefixes) {
  WorkloadOptions options;
  options.input = LengthDistribution::Fixed(4);
  options.shared_prefix = 20;
  options.prefix_groups = 3;
  std::set<std::string> seen;
  for (int32_t seed = 0; seed < 4; ++seed) {
    options.seed = seed;
    const Workload workload(options, static_cast<uint64_t>(seed));
    for (int64_t id = 0; id < 30; ++id) {
      const std::string text = workload.Make(id).turns.front().text;
      EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 24);
      seen.insert(Words(text, 20));
    }
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(Workload, TurnsHaveTheirOwnLengthsAndThinkTimes) {
  WorkloadOptions options;
  options.turns = LengthDistribution::Fixed(200);
  options.input = *LengthDistribution::Parse("3:6");
  options.think_seconds = 2;
  const ConversationSpec conversation = Workload(options, 0).Make(0);
  ASSERT_EQ(conversation.turns.size(), 200u);
  EXPECT_EQ(conversation.turns.front().think_seconds, 0);
  double sum = 0;
  for (const TurnSpec& turn : conversation.turns) {
    sum += turn.think_seconds;
    EXPECT_EQ(std::count(turn.text.begin(), turn.text.end(), ' '), turn.input_words);
  }
  EXPECT_NEAR(sum / 199, 2, 0.5);
}

TEST(ParseReplay, ReadsOurTracesAndPublicOnes) {
  const auto ours = ParseReplay(
      "{\"time\": 3.5, \"input\": 10, \"output\": 20, \"late_ms\": 0}\n\n"
      "{\"time\": 1.5, \"input\": 5, \"output\": 6}\n");
  ASSERT_TRUE(ours.ok());
  ASSERT_EQ(ours->size(), 1u);
  const std::vector<ReplayedRequest>& load = ours->front();
  ASSERT_EQ(load.size(), 2u);
  EXPECT_EQ(load[0].time, 0);
  EXPECT_EQ(load[0].input_words, 5);
  EXPECT_EQ(load[1].time, 2);
  EXPECT_EQ(load[1].output_tokens, 20);
  const auto other = ParseReplay(
      "{\"timestamp\": 500, \"input_length\": 7, \"output_length\": 8, \"hash_ids\": [1]}\n"
      "{\"timestamp\": 1500, \"input_length\": 7, \"output_length\": 8}");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->front()[1].time, 1);
}

TEST(ParseReplay, KeepsTheLoadsOfATraceApart) {
  const auto loads = ParseReplay(
      "{\"load\": 10, \"time\": 0, \"input\": 3, \"output\": 1}\n"
      "{\"load\": 2, \"time\": 1, \"input\": 1, \"output\": 1}\n"
      "{\"load\": 2, \"time\": 5, \"input\": 2, \"output\": 1}\n");
  ASSERT_TRUE(loads.ok());
  ASSERT_EQ(loads->size(), 2u);
  ASSERT_EQ((*loads)[0].size(), 2u);
  EXPECT_EQ((*loads)[0][1].time, 4);
  EXPECT_EQ((*loads)[1][0].input_words, 3);
}

TEST(ParseReplay, NamesTheMalformedLine) {
  for (const char* line :
       {"x", "[]", "{\"time\": 1}", "{\"time\": -1, \"input\": 1, \"output\": 1}",
        "{\"time\": 1, \"input\": 0, \"output\": 1}",
        "{\"time\": 1, \"input\": 1, \"output\": 1e9}",
        "{\"time\": \"1\", \"input\": 1, \"output\": 1}"}) {
    const auto replay =
        ParseReplay(std::string("{\"time\": 1, \"input\": 1, \"output\": 1}\n") + line);
    ASSERT_EQ(replay.status().code(), StatusCode::kInvalidArgument) << line;
    EXPECT_NE(replay.status().message().find("line 2"), std::string_view::npos) << line;
  }
  EXPECT_FALSE(ParseReplay("\n\n").ok());
}

}  // namespace
}  // namespace tokamak::loadgen
