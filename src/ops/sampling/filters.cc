#include "ops/sampling/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "ops/sampling/logits_row.h"
#include "ops/sampling/xtc.h"

namespace tokamak::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.y > b.y || (a.y == b.y && a.id < b.id);
}

// Masses are first added up in bands of keys: only the band in which the sum reaches the target
// needs sorting. Keys are in [0, -kMassless].
constexpr int kBandsPerUnit = 64;
constexpr int kBands = static_cast<int>(-kMassless) * kBandsPerUnit;
using Bands = std::array<Mass, kBands + 1>;

int BandOf(double key) { return std::min(static_cast<int>(key * kBandsPerUnit), kBands); }

// Returns the band in which the sum reaches *target; subtracts the bands before it from *target.
int FindBand(const Bands& bands, Mass* target) {
  size_t band = 0;
  while (bands[band] < *target) *target -= bands[band++];
  return static_cast<int>(band);
}

// The key of top_p: smaller is more likely.
double Unlikeliness(const Candidate& c) { return -static_cast<double>(c.y); }

// The least mass that is at least `part` of `total`, and at least 1, so that one token stays.
Mass Target(float part, Mass total) {
  const double target = std::ceil(static_cast<double>(part) * static_cast<double>(total));
  return std::clamp<Mass>(static_cast<Mass>(target), 1, total);
}

}  // namespace

bool DropsTopChoices(const SamplingParams& params, const DrawKey& key) {
  return params.xtc_probability > 0.0f && DecidesXtc(key, params.xtc_probability);
}

bool HasFilters(const SamplingParams& params, const DrawKey& key) {
  return params.top_k > 0 || params.typical_p < 1.0f || params.top_p < 1.0f ||
         params.min_p > 0.0f || DropsTopChoices(params, key);
}

std::span<const Candidate> Filter::Apply(std::span<const float> tempered,
                                         const SamplingParams& params, const DrawKey& key) {
  const bool typical = params.typical_p < 1.0f;
  const bool top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < tempered.size();
  bool top_p = params.top_p < 1.0f;
  if (top_k) {
    GatherTop(tempered, params.top_k);
  } else if (typical) {
    GatherAll(tempered, kMassless);
  } else if (top_p) {
    GatherTopP(tempered, params.top_p);
    top_p = false;
  } else if (params.min_p > 0.0f) {
    const double floor = ExactLog(static_cast<double>(params.min_p));
    GatherAll(tempered, std::nextafter(static_cast<float>(floor), -kInf));
  } else {
    GatherAll(tempered, -kInf);
  }
  if (typical) KeepTypical(params.typical_p);
  if (top_p) KeepTopP(params.top_p);
  if (params.min_p > 0.0f) KeepMinP(params.min_p);
  if (DropsTopChoices(params, key)) DropTopChoices(params.xtc_threshold);
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

// Gathers only the bands up to the one in which the sum reaches the target.
void Filter::GatherTopP(std::span<const float> tempered, float top_p) {
  constexpr size_t kChunk = 512;
  float weights[kChunk];
  Bands bands{};
  Mass total = 0;
  for (size_t begin = 0; begin < tempered.size(); begin += kChunk) {
    const auto chunk = tempered.subspan(begin, std::min(kChunk, tempered.size() - begin));
    Weigh(chunk, 0.0f, weights);
    for (size_t j = 0; j < chunk.size(); ++j) {
      if (chunk[j] <= kMassless) continue;
      const Mass mass = RoundMass(weights[j]);
      bands[static_cast<size_t>(BandOf(-static_cast<double>(chunk[j])))] += mass;
      total += mass;
    }
  }
  Mass target = Target(top_p, total);
  const int last = FindBand(bands, &target);
  kept_.clear();
  for (size_t t = 0; t < tempered.size(); ++t) {
    const float y = tempered[t];
    if (y > kMassless && BandOf(-static_cast<double>(y)) <= last) {
      kept_.push_back({static_cast<TokenId>(t), y});
    }
  }
  CutBand(last, target, Unlikeliness);
}

// The distance of a token's information from the entropy H, |-ln p - H|, is |y - mean y|, because
// -ln p = ln Z - y and H = ln Z - mean y. (arXiv:2202.00666, equation 10.)
void Filter::KeepTypical(float typical_p) {
  Mass total = 0;
  Mass weighted = 0;  // Σ mass · -y; each term is at most e^-1 · 2^40
  for (const Candidate& c : kept_) {
    if (c.y <= kMassless) continue;
    const Mass mass = MassOf(c.y);
    total += mass;
    weighted += static_cast<Mass>(static_cast<double>(mass) * static_cast<double>(-c.y));
  }
  const double mean = -(static_cast<double>(weighted) / static_cast<double>(total));
  KeepMass(Target(typical_p, total),
           [mean](const Candidate& c) { return std::fabs(static_cast<double>(c.y) - mean); });
}

void Filter::KeepTopP(float top_p) {
  Mass total = 0;
  for (const Candidate& c : kept_) total += MassOf(c.y);
  KeepMass(Target(top_p, total), Unlikeliness);
}

void Filter::KeepMinP(float min_p) {
  double best = -static_cast<double>(kInf);
  for (const Candidate& c : kept_) best = std::max(best, static_cast<double>(c.y));
  const double floor = best + ExactLog(static_cast<double>(min_p));
  std::erase_if(kept_, [floor](const Candidate& c) { return static_cast<double>(c.y) < floor; });
}

void Filter::DropTopChoices(float threshold) {
  Mass total = 0;
  for (const Candidate& c : kept_) total += MassOf(c.y);
  std::optional<Candidate> last;
  for (const Candidate& c : kept_) {
    if (!ReachesXtc(MassOf(c.y), total, threshold)) continue;
    if (!last || MoreLikely(*last, c)) last = c;
  }
  if (!last) return;
  std::erase_if(kept_, [last](const Candidate& c) { return MoreLikely(c, *last); });
}

template <typename Key>
void Filter::KeepMass(Mass target, Key key) {
  std::erase_if(kept_, [](const Candidate& c) { return c.y <= kMassless; });
  Bands bands{};
  for (const Candidate& c : kept_) bands[static_cast<size_t>(BandOf(key(c)))] += MassOf(c.y);
  const int last = FindBand(bands, &target);
  CutBand(last, target, key);
}

// Quickselect by mass: halves the range that contains the cut until one candidate is left.
template <typename Key>
void Filter::CutBand(int band, Mass target, Key key) {
  const auto before = [&key](const Candidate& a, const Candidate& b) {
    const double key_a = key(a);
    const double key_b = key(b);
    return key_a < key_b || (key_a == key_b && a.id < b.id);
  };
  scratch_.clear();
  for (const Candidate& c : kept_) {
    if (BandOf(key(c)) == band) scratch_.push_back(c);
  }
  auto begin = scratch_.begin();
  auto end = scratch_.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, before);
    Mass upper = 0;  // of [begin, middle), which come before the others
    for (auto it = begin; it != middle; ++it) upper += MassOf(it->y);
    if (upper >= target) {
      end = middle;
    } else {
      target -= upper;
      begin = middle;
    }
  }
  const Candidate cut = *begin;
  std::erase_if(kept_, [&](const Candidate& c) {
    const int own = BandOf(key(c));
    return own > band || (own == band && before(cut, c));
  });
}

}  // namespace tokamak::sampling
