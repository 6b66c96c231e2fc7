#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tokamak {

float BeamSearch::Normalized(float score, int32_t length) const {
  // In single precision, as transformers divides.
  return score /
         static_cast<float>(std::pow(static_cast<double>(length), double{params_.length_penalty}));
}

void BeamSearch::AddHypothesis(Hypothesis hypothesis) {
  const auto place =
      std::upper_bound(hypotheses_.begin(), hypotheses_.end(), hypothesis,
                       [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  hypotheses_.insert(place, std::move(hypothesis));
  if (hypotheses_.size() > static_cast<size_t>(params_.width)) hypotheses_.pop_back();
}

bool BeamSearch::CanImprove() const {
  if (!full()) return true;
  const bool longest =
      params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
  const float best = Normalized(beams_.front().score, longest ? max_tokens_ : length_);
  return best > hypotheses_.back().score;
}

void BeamSearch::Advance(std::span<const std::vector<TokenLogprobs::Entry>> candidates,
                         int64_t num_candidates, FunctionRef<bool(int32_t, TokenId)> ends) {
  CHECK(!done_ && candidates.size() == beams_.size());
  struct Continuation {
    float score;
    int32_t parent;
    TokenId token;
    float logprob;
  };
  std::vector<Continuation> all;
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (const TokenLogprobs::Entry& entry : candidates[i]) {
      all.push_back({beams_[i].score + entry.logprob, static_cast<int32_t>(i), entry.token_id,
                     entry.logprob});
    }
  }
  const auto better = [](const Continuation& a, const Continuation& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
  };
  const auto count = std::min(all.size(), static_cast<size_t>(num_candidates));
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    better);
  ++length_;
  const auto width = static_cast<size_t>(params_.width);
  std::vector<Beam> next;
  for (size_t i = 0; i < count && (i < width || next.size() < width); ++i) {
    const Continuation& from = all[i];
    const auto tokens = [&] {
      std::vector<TokenId> longer = beams_[static_cast<size_t>(from.parent)].tokens;
      longer.push_back(from.token);
      return longer;
    };
    const auto logprobs = [&] {
      Logprobs longer = beams_[static_cast<size_t>(from.parent)].logprobs;
      if (!num_logprobs_) return longer;
      const auto& others = candidates[static_cast<size_t>(from.parent)];
      const size_t top = std::min(others.size(), static_cast<size_t>(*num_logprobs_));
      longer.push_back(std::make_shared<const TokenLogprobs>(TokenLogprobs{
          .token = {from.token, from.logprob},
          .top = {others.begin(), others.begin() + static_cast<std::ptrdiff_t>(top)}}));
      return longer;
    };
    if (!ends(from.parent, from.token) && length_ < max_tokens_) {
      if (next.size() < width) next.push_back({tokens(), from.score, from.parent, logprobs()});
    } else if (i < width) {  // the others only make up for those that end
      AddHypothesis({tokens(), Normalized(from.score, length_), logprobs()});
    }
  }
  done_ = next.empty();
  if (done_) return;
  beams_ = std::move(next);
  done_ = !CanImprove() || (params_.early_stopping == EarlyStopping::kYes && full());
}

}  // namespace tokamak
