#include "ops/host/route.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "ops/uniform_routing.h"

namespace tokamak {
namespace {

using Scores = std::array<double, kMaxExperts>;

void Softmax(const float* logits, int32_t n, double* out) {
  const double highest = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int32_t i = 0; i < n; ++i) sum += out[i] = std::exp(logits[i] - highest);
  for (int32_t i = 0; i < n; ++i) out[i] /= sum;
}

void ScoreExperts(const RouterConfig& router, const float* logits, double* scores) {
  switch (router.score) {
    case RouterConfig::Score::kSoftmax:
      return Softmax(logits, router.num_experts, scores);
    case RouterConfig::Score::kSigmoid:
      for (int32_t e = 0; e < router.num_experts; ++e) {
        scores[e] = 1 / (1 + std::exp(-static_cast<double>(logits[e])));
      }
      return;
    case RouterConfig::Score::kChosenSoftmax:
      std::copy(logits, logits + router.num_experts, scores);
      return;
    case RouterConfig::Score::kUniform:
      for (int32_t e = 0; e < router.num_experts; ++e) {
        scores[e] = UniformScore(e, std::bit_cast<uint32_t>(logits[e]));
      }
  }
}

// The indices of the `count` highest of n values; of equal ones the lower first. NaN is below all.
template <typename Index>
void Highest(const double* values, int32_t n, int32_t count, Index* out) {
  std::array<bool, kMaxExperts> taken = {};
  for (int32_t j = 0; j < count; ++j) {
    int32_t best = -1;
    for (int32_t i = 0; i < n; ++i) {
      if (taken[static_cast<size_t>(i)]) continue;
      if (best < 0 || values[i] > values[best] ||
          std::isnan(values[best]) > std::isnan(values[i])) {
        best = i;
      }
    }
    taken[static_cast<size_t>(best)] = true;
    out[j] = best;
  }
}

double ScoreGroup(RouterConfig::GroupScore kind, const double* choice, int32_t size) {
  double first = -INFINITY, second = -INFINITY;
  for (int32_t i = 0; i < size; ++i) {
    second = std::max(second, std::min(first, choice[i]));
    first = std::max(first, choice[i]);
  }
  return kind == RouterConfig::GroupScore::kBest || size == 1 ? first : first + second;
}

// Makes sure that experts outside the best groups are chosen last, as the reference implementations
// do: softmax scores, which are never negative, become 0; sigmoids with a bias, which may be
// negative, become -∞.
void KeepBestGroups(const RouterConfig& router, double* choice) {
  const int32_t size = router.num_experts / router.num_groups;
  Scores scores = {};
  for (int32_t g = 0; g < router.num_groups; ++g) {
    scores[static_cast<size_t>(g)] = ScoreGroup(router.group_score, choice + g * size, size);
  }
  const double masked = router.score == RouterConfig::Score::kSoftmax ? 0.0 : -INFINITY;
  std::array<int32_t, kMaxExperts> best = {};
  Highest(scores.data(), router.num_groups, router.top_groups, best.data());
  for (int32_t g = 0; g < router.num_groups; ++g) {
    if (std::find(best.begin(), best.begin() + router.top_groups, g) !=
        best.begin() + router.top_groups) {
      continue;
    }
    std::fill_n(choice + g * size, size, masked);
  }
}

}  // namespace

void ChooseExperts(const RouterConfig& router, const float* logits, const float* bias,
                   int32_t* experts, float* weights) {
  CHECK(0 < router.top_k && router.top_k <= router.num_experts &&
        router.num_experts <= kMaxExperts);
  Scores scores = {}, choice = {};
  ScoreExperts(router, logits, scores.data());
  for (int32_t e = 0; e < router.num_experts; ++e) {
    const auto at = static_cast<size_t>(e);
    choice[at] = scores[at] + (bias != nullptr ? bias[e] : 0.0f);
  }
  if (router.num_groups > 1) KeepBestGroups(router, choice.data());
  Highest(choice.data(), router.num_experts, router.top_k, experts);

  Scores chosen = {};
  if (router.score == RouterConfig::Score::kChosenSoftmax) {
    std::array<float, kMaxExperts> best = {};
    for (int32_t j = 0; j < router.top_k; ++j) best[static_cast<size_t>(j)] = logits[experts[j]];
    Softmax(best.data(), router.top_k, chosen.data());
  } else if (router.score == RouterConfig::Score::kUniform) {
    std::fill_n(chosen.begin(), router.top_k, 1.0 / router.top_k);
  } else {
    for (int32_t j = 0; j < router.top_k; ++j) {
      chosen[static_cast<size_t>(j)] = scores[static_cast<size_t>(experts[j])];
    }
  }
  double divisor = 1;
  if (router.normalize) {
    divisor = 1e-20;  // as in the reference implementations: all sigmoids may be 0
    for (int32_t j = 0; j < router.top_k; ++j) divisor += chosen[static_cast<size_t>(j)];
  }
  for (int32_t j = 0; j < router.top_k; ++j) {
    weights[j] = static_cast<float>(chosen[static_cast<size_t>(j)] / divisor * router.scale);
  }
}

void GroupByExpert(const RouteTokens& op) {
  const int32_t num_experts = op.router.num_experts, top_k = op.router.top_k;
  auto* const offsets = static_cast<int32_t*>(op.offsets.data);
  auto* const tokens = static_cast<int32_t*>(op.tokens.data);
  std::fill_n(offsets, num_experts + 1, 0);
  const int64_t num_tokens = op.experts.rows();
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int32_t j = 0; j < top_k; ++j) ++offsets[op.experts.Row<int32_t>(t)[j] + 1];
  }
  for (int32_t e = 0; e < num_experts; ++e) offsets[e + 1] += offsets[e];
  std::array<int32_t, kMaxExperts> next;
  std::copy_n(offsets, num_experts, next.begin());
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int32_t j = 0; j < top_k; ++j) {
      const auto expert = static_cast<size_t>(op.experts.Row<int32_t>(t)[j]);
      const int32_t row = next[expert]++;
      tokens[row] = static_cast<int32_t>(t);
      op.rows.Row<int32_t>(t)[j] = row;
    }
  }
}

}  // namespace tokamak
