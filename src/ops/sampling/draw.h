// The draw (Gumbel-max): the token with the largest y + Gumbel (base/gumbel.h), where y is its
// tempered logit; of equal ones the lowest id. A token's Gumbel does not depend on which other
// tokens take part.
#pragma once

#include <span>

#include "base/gumbel.h"
#include "step/step_input.h"

namespace tokamak::sampling {

struct Candidate {
  TokenId id = 0;
  float y = 0;  // tempered logit, at most 0
};

// Draws from a whole row. `tempered` is the output of Temper: at least one entry is 0.
TokenId DrawFromRow(std::span<const float> tempered, const DrawKey& key);

// Draws from candidates, which are sorted by ascending id and not empty.
TokenId DrawFromCandidates(std::span<const Candidate> candidates, const DrawKey& key);

}  // namespace tokamak::sampling
