// The host sampler's draws against the distribution that the definitions of all filters give.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/testing/sanitizers.h"
#include "ops/sampling/host_sampler.h"

namespace tokamak {
namespace {

constexpr int32_t kVocab = 48;

class FakeStream final : public Stream {};

std::vector<float> RandomLogits(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(random);
  return logits;
}

// Returns the least logit that top_n_sigma keeps.
double SigmaFloor(const std::vector<float>& logits, float n) {
  if (n == 0) return -INFINITY;
  const double size = static_cast<double>(logits.size());
  const double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / size;
  double variance = 0;
  for (const float x : logits) variance += (x - mean) * (x - mean) / size;
  return *std::max_element(logits.begin(), logits.end()) - n * std::sqrt(variance);
}

// The expected probabilities by definition: in double, by sorting.
std::vector<double> ReferenceDistribution(const std::vector<float>& logits,
                                          const SamplingParams& spec) {
  std::vector<double> p(logits.size());
  const auto normalize = [&p] {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
  };
  // Keeps the first tokens by ascending `key` until they have `reached` of the probability.
  const auto keep = [&p](const std::vector<double>& key, double reached, size_t most) {
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&key](size_t a, size_t b) { return key[a] < key[b]; });
    double sum = 0;
    size_t kept = 0;
    for (const size_t t : order) {
      if (kept > 0 && (sum >= reached || kept >= most)) {
        p[t] = 0;
        continue;
      }
      if (p[t] == 0) continue;
      sum += p[t];
      ++kept;
    }
  };
  const auto negated = [&p] {
    std::vector<double> key(p);
    for (double& x : key) x = -x;
    return key;
  };
  const double max = *std::max_element(logits.begin(), logits.end());
  const double floor = SigmaFloor(logits, spec.top_n_sigma);
  const auto set_softmax = [&](double temperature) {
    for (size_t t = 0; t < p.size(); ++t) {
      p[t] = logits[t] < floor ? 0 : std::exp((logits[t] - max) / temperature);
    }
    normalize();
  };
  set_softmax(1);
  double temperature = spec.temperature;
  if (spec.dynatemp_range > 0) {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    const auto count = static_cast<double>(p.size()) - std::count(p.begin(), p.end(), 0.0);
    const double low = std::max(0.0, temperature - spec.dynatemp_range);
    const double high = temperature + spec.dynatemp_range;
    temperature = low + (high - low) * std::pow(entropy / std::log(count), spec.dynatemp_exponent);
  }
  set_softmax(temperature);
  if (spec.top_k > 0) keep(negated(), 2, static_cast<size_t>(spec.top_k));
  normalize();
  if (spec.typical_p < 1) {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    std::vector<double> key(p.size());
    for (size_t t = 0; t < p.size(); ++t) {
      key[t] = p[t] > 0 ? std::fabs(-std::log(p[t]) - entropy) : INFINITY;
    }
    keep(key, spec.typical_p, p.size());
  }
  normalize();
  if (spec.top_p < 1) keep(negated(), spec.top_p, p.size());
  const double best = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = x < spec.min_p * best ? 0 : x;
  normalize();
  double least = INFINITY;  // of the tokens that XTC calls the top choices
  for (const double x : p) least = x > 0 && x >= spec.xtc_threshold ? std::min(least, x) : least;
  std::vector<double> without = p;
  for (double& x : without) x = x > least ? 0 : x;
  std::swap(p, without);
  normalize();
  for (size_t t = 0; t < p.size(); ++t) {
    p[t] = spec.xtc_probability * p[t] + (1 - spec.xtc_probability) * without[t];
  }
  return p;
}

// The upper 0.001 point of chi-squared (Wilson and Hilferty, 1931).
double ChiSquaredBound(int degrees) {
  const double k = degrees;
  return k * std::pow(1 - 2 / (9 * k) + 3.0902 * std::sqrt(2 / (9 * k)), 3);
}

// Expects that counts fit the probabilities. Cells with fewer than 10 expected draws are pooled.
void ExpectFits(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double chi_squared = 0;
  double rest_expected = 0;
  double rest_count = 0;
  int cells = 0;
  for (size_t t = 0; t < counts.size(); ++t) {
    const double expected = probabilities[t] * draws;
    if (probabilities[t] == 0) {
      EXPECT_EQ(counts[t], 0) << "token " << t << " should be dropped";
    }
    if (expected < 10) {
      rest_expected += expected;
      rest_count += counts[t];
      continue;
    }
    chi_squared += (counts[t] - expected) * (counts[t] - expected) / expected;
    ++cells;
  }
  if (rest_expected >= 10) {
    chi_squared += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
    ++cells;
  }
  if (cells > 1) {
    EXPECT_LT(chi_squared, ChiSquaredBound(cells - 1)) << cells << " cells";
  }
}

struct Named {
  const char* name;
  SamplingParams spec;
};

std::vector<Named> DistributionCases() {
  return {
      {"plain", {}},
      {"cold", {.temperature = 0.3f}},
      {"hot", {.temperature = 5.0f}},
      {"top_k", {.top_k = 7}},
      {"top_p", {.top_p = 0.8f}},
      {"min_p", {.min_p = 0.1f}},
      {"typical_p", {.typical_p = 0.6f}},
      {"top_n_sigma", {.top_n_sigma = 1.2f}},
      {"hot top_n_sigma", {.temperature = 3.0f, .top_n_sigma = 0.9f}},
      {"dynatemp", {.dynatemp_range = 0.7f}},
      {"dynatemp top_n_sigma",
       {.temperature = 0.6f, .dynatemp_range = 0.9f, .dynatemp_exponent = 2, .top_n_sigma = 2}},
      {"xtc", {.xtc_probability = 0.4f, .xtc_threshold = 0.03f}},
      {"xtc top_p", {.top_p = 0.8f, .xtc_probability = 1.0f, .xtc_threshold = 0.06f}},
      {"top_k top_p", {.top_k = 12, .top_p = 0.7f}},
      {"top_k min_p", {.top_k = 9, .min_p = 0.05f}},
      {"typical_p top_p", {.top_p = 0.9f, .typical_p = 0.7f}},
      {"hot top_p min_p", {.temperature = 2.0f, .top_p = 0.95f, .min_p = 0.1f}},
      {"all",
       {.temperature = 1.5f,
        .dynatemp_range = 0.5f,
        .top_n_sigma = 2.5f,
        .top_k = 20,
        .top_p = 0.9f,
        .min_p = 0.02f,
        .typical_p = 0.9f,
        .xtc_probability = 0.5f}},
  };
}

// Draws many tokens from one row, by different seeds, choices and positions.
std::vector<int> CountDraws(const std::vector<float>& row, SamplingParams spec, int draws) {
  constexpr int kRows = 100;
  ThreadPool pool(1);
  FakeStream stream;
  const auto sampler =
      MakeHostSampler({.max_seqs = kRows, .max_rows = kRows, .vocab_size = kVocab}, &pool);
  std::vector<float> all;
  for (int i = 0; i < kRows; ++i) {
    all.insert(all.end(), row.begin(), row.end());
    spec.seed = static_cast<uint64_t>(i / 10);
    sampler->Admit(i, spec, /*choice=*/i % 10, std::vector<TokenId>{0}, 1, stream);
  }
  std::vector<int> counts(kVocab, 0);
  std::vector<SampleResult> results(kRows);
  for (int32_t position = 1; position <= draws / kRows; ++position) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < kRows; ++i) rows.push_back({.slot = i, .position = position});
    std::vector<float> logits = all;
    sampler->Sample(Tensor(logits.data(), DType::kF32, Shape{kRows, kVocab}), rows, {}, results,
                    stream);
    for (const SampleResult& result : results) ++counts[static_cast<size_t>(result.token)];
  }
  return counts;
}

TEST(DrawDistribution, FitsTheReference) {
  const std::vector<float> row = RandomLogits(11);
  for (const Named& c : DistributionCases()) {
    SCOPED_TRACE(c.name);
    ExpectFits(CountDraws(row, c.spec, testing::Fewer(200'000)),
               ReferenceDistribution(row, c.spec));
  }
}

TEST(DrawDistribution, IsUniformAtAVeryHighTemperature) {
  ExpectFits(CountDraws(RandomLogits(5), {.temperature = 1e6f}, 20'000),
             std::vector<double>(kVocab, 1.0 / kVocab));
}

}  // namespace
}  // namespace tokamak
