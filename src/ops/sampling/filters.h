// Filters that keep some tokens of a row. Each works on the renormalized distribution that the
// previous ones left. The result is exactly that of sorting all tokens by probability (equal ones
// by id) and cutting the list.
//
// typical_p and top_p measure probabilities in units of 2^-40 of the most likely token's, and drop
// tokens below one unit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling/draw.h"
#include "ops/sampling/mass.h"
#include "step/step_input.h"

namespace tokamak::sampling {

// Returns whether the draw drops the most likely tokens (XTC).
bool DropsTopChoices(const SamplingParams& params, const DrawKey& key);
// Returns whether any filter might drop a token.
bool HasFilters(const SamplingParams& params, const DrawKey& key);

// Reuses its memory between calls. One per thread.
class Filter {
 public:
  // Returns the tokens of `tempered` (see Temper) that survive top_k, typical_p, top_p, min_p and
  // xtc, sorted by ascending id. Never empty.
  std::span<const Candidate> Apply(std::span<const float> tempered, const SamplingParams& params,
                                   const DrawKey& key);

 private:
  void GatherAll(std::span<const float> tempered, float above);
  void GatherTop(std::span<const float> tempered, int32_t top_k);
  void GatherTopP(std::span<const float> tempered, float top_p);
  void KeepTypical(float typical_p);
  void KeepTopP(float top_p);
  void KeepMinP(float min_p);
  // Keeps the least likely token of those that reach `threshold`, and all less likely ones.
  void DropTopChoices(float threshold);
  // Keeps the first candidates by (key, id), as many as needed to reach `target`.
  template <typename Key>
  void KeepMass(Mass target, Key key);
  // Keeps the bands below `band`, and as many first candidates of `band` as reach `target`.
  template <typename Key>
  void CutBand(int band, Mass target, Key key);

  std::vector<Candidate> kept_;  // sorted by ascending id between the steps
  std::vector<Candidate> scratch_;
  std::vector<TokenId> top_;
};

}  // namespace tokamak::sampling
