// Drafts: tokens that probably follow a sequence, which a step verifies (StepRow::drafts). How
// probable they are, and how many of them make generation fastest.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "engine/prompt_lookup.h"
#include "step/step_input.h"

namespace tokamak {

struct DraftOptions {
  int32_t most = 0;   // drafts of a row; 0: none
  int32_t least = 0;  // a row that would have fewer has none
  // The executor has a draft model, which proposes them (RowOutput::proposals). Otherwise they come
  // from the text.
  bool from_model = false;
  // The lengths of a match (PromptLookup).
  int32_t min_match = 2;
  int32_t max_match = 5;
  float min_probability = 0;  // a draft from the text that is less probable ends the row's drafts
  // Every row gets `most` drafts, whatever they are worth (EngineOptions::synthetic_acceptance).
  bool always = false;
};

// How often what followed a match was drawn again, by the length of the match.
class MatchAcceptance {
 public:
  // The latest `memory` or so draws count for each length.
  explicit MatchAcceptance(double memory) : memory_(memory) {}

  void Note(int32_t length, bool accepted);
  // The share for matches of this length; `prior` counts like a few draws.
  double Estimate(int32_t length, double prior) const;

 private:
  static constexpr size_t kNumBuckets = 9;
  struct Bucket {
    double accepted = 0;
    double all = 0;
  };
  static size_t BucketOf(int32_t length);

  double memory_;
  std::array<Bucket, kNumBuckets> buckets_{};
};

// Proposes drafts for one sequence from its own text, and learns from what was drawn instead, be it
// proposed or not: a sequence without drafts is watched like one with them, so nothing has to be
// proposed only to see whether it would be accepted.
class TextDrafter {
 public:
  explicit TextDrafter(const DraftOptions& options)
      : lookup_(options.min_match, options.max_match),
        min_probability_(options.min_probability),
        acceptance_(kMemory) {}

  // Takes the tokens added to `text` since the last call; of a prompt, at most the next
  // `most_indexed`. `all` learns, too. Returns how many tokens of a prompt it has taken.
  int32_t Follow(std::span<const ContentId> text, int32_t most_indexed, MatchAcceptance* all);

  // The probabilities that at least 1, 2, ... drafts are accepted, at most `most` of them; none if
  // there is no match.
  std::vector<double> Chances(int32_t most, const MatchAcceptance& all) const;
  // The first `count` drafts, or those before an image; the last token again and again if there is
  // no match.
  std::vector<TokenId> Propose(std::span<const ContentId> text, int32_t count) const;

  static constexpr double kMemory = 32;

 private:
  PromptLookup lookup_;
  const float min_probability_;  // see DraftOptions
  bool caught_up_ = false;       // with the prompt; until then there is no match
  MatchAcceptance acceptance_;
};

// How often a draft model's proposals for a sequence were drawn. Only what was proposed shows it.
class ProposalAcceptance {
 public:
  // `accepted` of `proposed` tokens were drawn.
  void Note(int32_t accepted, int32_t proposed);
  // Nothing was proposed for the sequence. In time it is worth another try.
  void NoteNone() { chance_ += (kPrior - chance_) * kForget; }
  // The probabilities that at least 1, 2, ... of `count` proposals are accepted.
  std::vector<double> Chances(int32_t count) const;

 private:
  static constexpr double kPrior = 0.7;
  static constexpr double kForget = 1.0 / 256;
  static constexpr double kLearn = 1.0 / 16;

  double chance_ = kPrior;  // of a proposal, if those before it are accepted
};

// The same for `count` drafts that a constraint forces. `acceptance`: by the place among them,
// from 1.
std::vector<double> ForcedChances(int32_t count, const MatchAcceptance& acceptance);

// Returns how many drafts each row gets, at most `most` together, so that a step gives most tokens
// per second. chances[i][j]: the probability that more than j drafts of row i are accepted, which
// falls with j. The step draws `num_decodes` tokens without drafts. seconds(n): its time with n
// drafts; 0: not known, so there are none. `noise`: the part by which these times are uncertain.
std::vector<int32_t> ChooseDrafts(std::span<const std::vector<double>> chances, int32_t most,
                                  int32_t num_decodes, FunctionRef<double(int32_t)> seconds,
                                  double noise = 0);

}  // namespace tokamak
