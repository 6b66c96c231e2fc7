#include "ops/sampling/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/sampling/logits_row.h"

namespace tokamak::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.y > b.y || (a.y == b.y && a.id < b.id);
}

// The least mass that is at least `part` of `total`; 1 at least, so that one token stays.
Mass Target(float part, Mass total) {
  const double target = std::ceil(static_cast<double>(part) * static_cast<double>(total));
  return std::clamp<Mass>(static_cast<Mass>(target), 1, total);
}

}  // namespace

bool HasFilters(const SamplingSpec& spec) {
  return spec.top_k > 0 || spec.typical_p < 1.0f || spec.top_p < 1.0f || spec.min_p > 0.0f;
}

std::span<const Candidate> Filter::Apply(std::span<const float> tempered,
                                         const SamplingSpec& spec) {
  const bool typical = spec.typical_p < 1.0f;
  const bool top_k = spec.top_k > 0 && static_cast<size_t>(spec.top_k) < tempered.size();
  bool top_p = spec.top_p < 1.0f;
  if (top_k) {
    GatherTop(tempered, spec.top_k);
  } else if (typical) {
    GatherAll(tempered, kMassless);
  } else if (top_p) {
    GatherTopP(tempered, spec.top_p);
    top_p = false;
  } else if (spec.min_p > 0.0f) {
    const double floor = ExactLog(static_cast<double>(spec.min_p));
    GatherAll(tempered, std::nextafter(static_cast<float>(floor), -kInf));
  } else {
    GatherAll(tempered, -kInf);
  }
  if (typical) KeepTypical(spec.typical_p);
  if (top_p) KeepTopP(spec.top_p);
  if (spec.min_p > 0.0f) KeepMinP(spec.min_p);
  CHECK(!kept_.empty());
  return kept_;
}

void Filter::GatherAll(std::span<const float> tempered, float above) {
  kept_.clear();
  for (size_t t = 0; t < tempered.size(); ++t) {
    if (tempered[t] > above) kept_.push_back({static_cast<TokenId>(t), tempered[t]});
  }
}

void Filter::GatherTop(std::span<const float> tempered, int32_t top_k) {
  constexpr int32_t kLargeForHeap = 1024;
  if (top_k > kLargeForHeap) {
    GatherAll(tempered, -kInf);
    const auto wanted = static_cast<size_t>(top_k);
    if (kept_.size() <= wanted) return;
    scratch_ = kept_;
    const auto last = scratch_.begin() + top_k - 1;
    std::nth_element(scratch_.begin(), last, scratch_.end(), MoreLikely);
    const Candidate cut = *last;
    std::erase_if(kept_, [cut](const Candidate& c) { return MoreLikely(cut, c); });
    return;
  }
  TopTokens(tempered, top_k, &top_);
  std::sort(top_.begin(), top_.end());
  kept_.clear();
  for (const TokenId id : top_) kept_.push_back({id, tempered[id]});
}

// top_p over a whole row without sorting it: masses are added up in bands of y, and only the bands
// down to the one where the sum reaches the target are gathered and cut.
void Filter::GatherTopP(std::span<const float> tempered, float top_p) {
  constexpr int kBandsPerUnit = 8;
  constexpr int kBands = static_cast<int>(-kMassless) * kBandsPerUnit;
  const auto band_of = [](float y) { return static_cast<int>(y * -kBandsPerUnit); };
  std::array<Mass, kBands + 1> bands{};
  Mass total = 0;
  for (const float y : tempered) {
    if (y <= kMassless) continue;
    const Mass mass = MassOf(y);
    bands[static_cast<size_t>(band_of(y))] += mass;
    total += mass;
  }
  const Mass target = Target(top_p, total);
  int last = 0;
  for (Mass sum = bands[0]; sum < target; sum += bands[static_cast<size_t>(++last)]) {
  }
  kept_.clear();
  for (size_t t = 0; t < tempered.size(); ++t) {
    const float y = tempered[t];
    if (y > kMassless && band_of(y) <= last) kept_.push_back({static_cast<TokenId>(t), y});
  }
  KeepMass(target, MoreLikely);
}

// The distance of a token's information from the entropy H, |-ln p - H|, is |y - mean y|, because
// -ln p = ln Z - y and H = ln Z - mean y. (arXiv:2202.00666, equation 10.)
void Filter::KeepTypical(float typical_p) {
  Mass total = 0;
  Mass weighted = 0;  // of -y; at most e^-1 · 2^40 each
  for (const Candidate& c : kept_) {
    if (c.y <= kMassless) continue;
    const Mass mass = MassOf(c.y);
    total += mass;
    weighted += static_cast<Mass>(static_cast<double>(mass) * static_cast<double>(-c.y));
  }
  const double mean = -(static_cast<double>(weighted) / static_cast<double>(total));
  KeepMass(Target(typical_p, total), [mean](const Candidate& a, const Candidate& b) {
    const double da = std::fabs(static_cast<double>(a.y) - mean);
    const double db = std::fabs(static_cast<double>(b.y) - mean);
    return da < db || (da == db && a.id < b.id);
  });
}

void Filter::KeepTopP(float top_p) {
  Mass total = 0;
  for (const Candidate& c : kept_) total += MassOf(c.y);
  KeepMass(Target(top_p, total), MoreLikely);
}

void Filter::KeepMinP(float min_p) {
  double best = -static_cast<double>(kInf);
  for (const Candidate& c : kept_) best = std::max(best, static_cast<double>(c.y));
  const double floor = best + ExactLog(static_cast<double>(min_p));
  std::erase_if(kept_, [floor](const Candidate& c) { return static_cast<double>(c.y) < floor; });
}

// A quickselect by mass: halves the range that holds the cut until one candidate is left.
template <typename Before>
void Filter::KeepMass(Mass target, Before before) {
  std::erase_if(kept_, [](const Candidate& c) { return c.y <= kMassless || MassOf(c.y) == 0; });
  scratch_ = kept_;
  auto begin = scratch_.begin();
  auto end = scratch_.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, before);
    Mass upper = 0;  // of [begin, middle), all before the rest
    for (auto it = begin; it != middle; ++it) upper += MassOf(it->y);
    if (upper >= target) {
      end = middle;
    } else {
      target -= upper;
      begin = middle;
    }
  }
  const Candidate cut = *begin;
  std::erase_if(kept_, [&](const Candidate& c) { return before(cut, c); });
}

TokenId DrawFromCandidates(std::span<const Candidate> candidates, const DrawKey& key) {
  double best = -std::numeric_limits<double>::infinity();
  TokenId token = candidates.front().id;
  uint32_t quad = ~uint32_t{0};
  std::array<uint32_t, 4> words{};
  for (const Candidate& c : candidates) {
    const uint32_t id = static_cast<uint32_t>(c.id);
    if (id / 4 != quad) words = DrawWords(key, quad = id / 4);
    const double score = static_cast<double>(c.y) + Gumbel(words[id % 4]);
    if (score > best) {
      best = score;
      token = c.id;
    }
  }
  return token;
}

}  // namespace tokamak::sampling
