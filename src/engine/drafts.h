// Drafts: tokens that probably follow a sequence, which a step verifies (StepRow::drafts).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_manager.h"
#include "step/step_input.h"

namespace tokamak {

struct DraftOptions {
  int32_t most = 0;  // drafts of a row; 0: none
  // A draft repeats what followed the same last tokens earlier in the prompt or answer. So many of
  // them must be the same; if more are, up to the second number, the place counts as better.
  int32_t min_match = 2;
  int32_t max_match = 5;
};

// Returns up to `most` tokens: those behind the latest of the places with the longest match.
// Prompt lookup decoding (Saxena, 2023).
std::vector<TokenId> ProposeFromText(std::span<const ContentId> text, const DraftOptions& options,
                                     int32_t most);

// How often a sequence's drafts were accepted.
class DraftHistory {
 public:
  // `accepted` of `proposed` drafts were.
  void Note(int32_t accepted, int32_t proposed);

  // Returns the number of drafts, at most `most`, with which a step gives most tokens per second.
  // `seconds(n)` predicts the time of the step with n drafts of this sequence; it draws
  // `num_decodes` tokens without any.
  template <typename Seconds>
  int32_t BestCount(int32_t most, int32_t num_decodes, Seconds seconds) {
    int32_t best = 0;
    double expected = num_decodes;
    double best_seconds = seconds(0);
    double best_expected = expected;
    double all_accepted = 1;
    for (int32_t n = 1; n <= most; ++n) {
      all_accepted *= acceptance_;
      expected += all_accepted;
      const double with_drafts = seconds(n);
      if (expected * best_seconds < best_expected * with_drafts) continue;
      best = n;
      best_seconds = with_drafts;
      best_expected = expected;
    }
    if (best == 0) acceptance_ += (kPrior - acceptance_) * kForget;  // tries again some time
    return best;
  }

 private:
  static constexpr double kPrior = 0.7;
  static constexpr double kForget = 1.0 / 64;
  static constexpr double kLearn = 1.0 / 8;

  double acceptance_ = kPrior;  // the probability that a draft is accepted if those before it are
};

}  // namespace tokamak
