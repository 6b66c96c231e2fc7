// BeamSearch: which continuations of a prompt go on, which have ended, and when the search is over.
// Exactly what transformers 5.23 does (generation/utils.py, _beam_search) for one prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "step/step_input.h"
#include "tokamak/request.h"

namespace tokamak {

// Knows nothing of models, slots and texts. Equal scores go to the better beam, then to the lower
// token id.
class BeamSearch {
 public:
  // One per token, if wanted. Beams that part after a token share its entry.
  using Logprobs = std::vector<std::shared_ptr<const TokenLogprobs>>;
  // A beam: a continuation that goes on.
  struct Beam {
    std::vector<TokenId> tokens = {};
    float score = 0;     // sum of the tokens' logprobs
    int32_t parent = 0;  // index of the beam that it continues, before the last Advance
    Logprobs logprobs = {};
  };
  struct Hypothesis {
    std::vector<TokenId> tokens = {};  // with the end token, if one ended it
    float score = 0;                   // sum of logprobs / length ^ length_penalty
    Logprobs logprobs = {};
  };

  // `max_tokens`: the length at which every continuation ends. `num_logprobs`: alternatives to each
  // token whose logprobs are wanted beside the token's own; absent: none at all.
  BeamSearch(const BeamSearchParams& params, int32_t max_tokens,
             std::optional<int32_t> num_logprobs = {})
      : params_(params), max_tokens_(max_tokens), num_logprobs_(num_logprobs), beams_(1) {}

  // Returns how many candidates each beam needs if `num_ends` tokens end a continuation: enough to
  // leave `width` that do not.
  static int64_t NumCandidates(int32_t width, size_t num_ends) {
    return std::max<int64_t>(2, 1 + static_cast<int64_t>(num_ends)) * width;
  }

  // Goes on by one token. `candidates` has those of each beam, best first, and may have more than
  // `num_candidates` for the sake of logprobs; a beam without any ends in nothing. ends(parent,
  // token): whether that token ends the beam's continuation, apart from max_tokens. It is asked
  // about the best `num_candidates` of all, best first, until `width` continuations go on; the
  // answers no are then the new beams, in this order. If all beams end, they stay as they are.
  void Advance(std::span<const std::vector<TokenLogprobs::Entry>> candidates,
               int64_t num_candidates, FunctionRef<bool(int32_t, TokenId)> ends);

  // The beams that go on, best first: at first one without tokens, then at most `width` of equal
  // length.
  std::span<const Beam> beams() const { return beams_; }
  // Whether the search is over.
  bool done() const { return done_; }
  // The best `width` ended continuations so far, best first.
  std::span<const Hypothesis> hypotheses() const { return hypotheses_; }

 private:
  // Whether a beam could still become better than a hypothesis.
  bool CanImprove() const;
  float Normalized(float score, int32_t length) const;
  void AddHypothesis(Hypothesis hypothesis);
  bool full() const { return hypotheses_.size() == static_cast<size_t>(params_.width); }

  const BeamSearchParams params_;
  const int32_t max_tokens_;
  const std::optional<int32_t> num_logprobs_;
  std::vector<Beam> beams_;
  std::vector<Hypothesis> hypotheses_;
  int32_t length_ = 0;  // of the beams
  bool done_ = false;
};

}  // namespace tokamak
