// Compares answers bit for bit.
#pragma once

#include <string>
#include <vector>

#include "tokamak/request.h"

namespace tokamak::invariance {

// Returns the first difference between two answers with one entry per choice, or "". Compares ids,
// logprobs and their alternatives (floats by their bits), prompt logprobs, texts, finish reasons
// and seeds. A choice that was cancelled in `mixed` must be a prefix of that in `alone`.
std::string FirstDifference(const std::vector<OutputChunk>& mixed,
                            const std::vector<OutputChunk>& alone);

}  // namespace tokamak::invariance
