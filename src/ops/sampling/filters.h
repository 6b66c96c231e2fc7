// The filters that keep some tokens of a row and drop the others. Each works on the distribution
// that the ones before it left (renormalized); the result is exactly that of sorting all tokens by
// probability, equal ones by id, and cutting the list.
//
// Filters by probability (typical_p, top_p) know probabilities in units of 2^-40 of the most likely
// token's; tokens below one unit are dropped by them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling/draw.h"
#include "ops/sampling/mass.h"
#include "step/step_input.h"

namespace tokamak::sampling {

// Whether any filter would drop a token.
bool HasFilters(const SamplingSpec& spec);

// Memory that filtering reuses. One per thread.
class Filter {
 public:
  // The tokens of `tempered` (see Temper) that survive top_k, typical_p, top_p and min_p, by
  // ascending id. Never empty.
  std::span<const Candidate> Apply(std::span<const float> tempered, const SamplingSpec& spec);

 private:
  void GatherAll(std::span<const float> tempered, float above);
  void GatherTop(std::span<const float> tempered, int32_t top_k);
  // Gathers and applies top_p.
  void GatherTopP(std::span<const float> tempered, float top_p);
  void KeepTypical(float typical_p);
  void KeepTopP(float top_p);
  void KeepMinP(float min_p);
  // Keeps the first candidates by (key, id), as many as it takes to reach `target`.
  template <typename Key>
  void KeepMass(Mass target, Key key);
  // Keeps bands of keys below `band` and, of that band, the first candidates that reach `target`.
  template <typename Key>
  void CutBand(int band, Mass target, Key key);

  std::vector<Candidate> kept_;  // by ascending id between the steps
  std::vector<Candidate> scratch_;
  std::vector<TokenId> top_;
};

}  // namespace tokamak::sampling
