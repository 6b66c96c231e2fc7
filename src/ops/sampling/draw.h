// The draw: Gumbel-max, the token with the largest y + Gumbel (base/gumbel.h), y its tempered
// logit; the lowest id among equals. Which tokens take part decides nothing about the others'
// Gumbels.
#pragma once

#include <span>

#include "base/gumbel.h"
#include "step/step_input.h"

namespace tokamak::sampling {

struct Candidate {
  TokenId id = 0;
  float y = 0;  // tempered logit, at most 0
};

// Among a whole row. `tempered` as Temper gives it: at least one entry is 0.
TokenId DrawFromRow(std::span<const float> tempered, const DrawKey& key);

// Among the candidates: by ascending id, not empty.
TokenId DrawFromCandidates(std::span<const Candidate> candidates, const DrawKey& key);

}  // namespace tokamak::sampling
