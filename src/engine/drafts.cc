#include "engine/drafts.h"

#include <algorithm>

namespace tokamak {
namespace {

constexpr double kPriorWeight = 2;     // draws
constexpr double kLeastChance = 0.02;  // a draft less probable than this never pays
// Drafts must promise so much more speed. Sequences that run together lose some of what drafts
// gain, because they then end at different times and leave the last ones in small batches.
constexpr double kMargin = 1.02;
constexpr double kMarginTogether = 1.06;
// Numbers of drafts of a step that are considered. If there were more, each would be measured less
// often, and the best of many uncertain predictions is often just the most wrong one.
constexpr int32_t kTotals[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64};

// The probability that a match of this length goes on, before anything is known about the text.
double PriorAcceptance(int32_t length) {
  constexpr double kPrior[] = {0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85};
  return kPrior[std::min<size_t>(static_cast<size_t>(length) - 1, std::size(kPrior) - 1)];
}

}  // namespace

size_t MatchAcceptance::BucketOf(int32_t length) {
  constexpr int32_t kFirst[kNumBuckets] = {1, 2, 3, 4, 5, 6, 8, 12, 20};
  const auto* const above = std::upper_bound(std::begin(kFirst), std::end(kFirst), length);
  return static_cast<size_t>(above - std::begin(kFirst)) - 1;
}

void MatchAcceptance::Note(int32_t length, bool accepted) {
  Bucket& bucket = buckets_[BucketOf(length)];
  const double keep = 1 - 1 / memory_;
  bucket.accepted = bucket.accepted * keep + (accepted ? 1 : 0);
  bucket.all = bucket.all * keep + 1;
}

double MatchAcceptance::Estimate(int32_t length, double prior) const {
  const Bucket& bucket = buckets_[BucketOf(length)];
  return (bucket.accepted + kPriorWeight * prior) / (bucket.all + kPriorWeight);
}

int32_t TextDrafter::Follow(std::span<const ContentId> text, int32_t most_indexed,
                            MatchAcceptance* all) {
  auto known = static_cast<size_t>(lookup_.size());
  if (!caught_up_) {  // the prompt is not drawn
    const size_t indexed = std::min(text.size() - known, static_cast<size_t>(most_indexed));
    lookup_.Extend(text.first(known + indexed));
    caught_up_ = known + indexed == text.size();
    return static_cast<int32_t>(indexed);
  }
  for (; known < text.size(); ++known) {
    const PromptLookup::Match& match = lookup_.match();
    if (match.end > 0 && !ShowsImage(text[static_cast<size_t>(match.end)])) {
      const bool same = text[static_cast<size_t>(match.end)] == text[known];
      acceptance_.Note(match.length, same);
      all->Note(match.length, same);
    }
    lookup_.Extend(text.first(known + 1));
  }
  return 0;
}

std::vector<double> TextDrafter::Chances(int32_t most, const MatchAcceptance& all) const {
  std::vector<double> chances;
  if (!caught_up_ || lookup_.match().end == 0) return chances;
  double chance = 1;
  for (int32_t i = 0; i < most; ++i) {
    // An accepted draft makes the match longer.
    const int32_t length = lookup_.match().length + i;
    const double next = acceptance_.Estimate(length, all.Estimate(length, PriorAcceptance(length)));
    if (next < min_probability_) break;
    chance *= next;
    chances.push_back(chance);
  }
  return chances;
}

std::vector<TokenId> TextDrafter::Propose(std::span<const ContentId> text, int32_t count) const {
  std::vector<TokenId> drafts;
  // Without a match, repeats the last token.
  const bool found = caught_up_ && lookup_.match().end > 0;
  const size_t end = found ? static_cast<size_t>(lookup_.match().end) : text.size() - 1;
  // Drafts repeat the text behind the match and, where that text ends, the drafts themselves.
  for (size_t i = end; drafts.size() < static_cast<size_t>(count); ++i) {
    if (i < text.size() && ShowsImage(text[i])) break;
    drafts.push_back(i < text.size() ? static_cast<TokenId>(text[i]) : drafts[i - text.size()]);
  }
  return drafts;
}

void ProposalAcceptance::Note(int32_t accepted, int32_t proposed) {
  // The first refused proposal is the last one that says anything.
  for (int32_t i = 0; i < std::min(accepted + 1, proposed); ++i) {
    chance_ += ((i < accepted ? 1.0 : 0.0) - chance_) * kLearn;
  }
}

std::vector<double> ProposalAcceptance::Chances(int32_t count) const {
  std::vector<double> chances;
  double chance = 1;
  for (int32_t i = 0; i < count; ++i) chances.push_back(chance *= chance_);
  return chances;
}

std::vector<double> ForcedChances(int32_t count, const MatchAcceptance& acceptance) {
  constexpr double kPrior = 0.7;  // a model may cut the text into other tokens
  std::vector<double> chances;
  double chance = 1;
  for (int32_t place = 1; place <= count; ++place) {
    chance *= acceptance.Estimate(place, kPrior);
    chances.push_back(chance);
  }
  return chances;
}

std::vector<int32_t> ChooseDrafts(std::span<const std::vector<double>> chances, int32_t most,
                                  int32_t num_decodes, FunctionRef<double(int32_t)> seconds,
                                  double noise) {
  struct Draft {
    double chance;
    size_t index;  // among those of its row
    size_t row;
  };
  std::vector<int32_t> counts(chances.size());
  const double without = seconds(0);
  if (without <= 0) return counts;
  std::vector<Draft> drafts;
  for (size_t row = 0; row < chances.size(); ++row) {
    for (size_t i = 0; i < chances[row].size() && chances[row][i] >= kLeastChance; ++i) {
      drafts.push_back({chances[row][i], i, row});
    }
  }
  // Equal chances come in the order of their indices, so a row's drafts stay in order.
  std::sort(drafts.begin(), drafts.end(), [](const Draft& a, const Draft& b) {
    if (a.chance != b.chance) return a.chance > b.chance;
    return a.index != b.index ? a.index < b.index : a.row < b.row;
  });
  drafts.resize(std::min(drafts.size(), static_cast<size_t>(std::max(0, most))));
  double tokens = num_decodes;
  // Among many uncertain predictions, one always looks good.
  const double margin = (num_decodes > 1 ? kMarginTogether : kMargin) + noise;
  double best_rate = margin * tokens / without;
  size_t best = 0;
  size_t num_drafts = 0;
  for (const int32_t total : kTotals) {
    if (drafts.size() < static_cast<size_t>(total)) break;
    while (num_drafts < static_cast<size_t>(total)) tokens += drafts[num_drafts++].chance;
    const double rate = tokens / seconds(total);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = num_drafts;
  }
  for (size_t i = 0; i < best; ++i) ++counts[drafts[i].row];
  return counts;
}

}  // namespace tokamak
