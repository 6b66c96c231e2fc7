// Answers, bit for bit.
#pragma once

#include <string>
#include <vector>

#include "tokamak/request.h"

namespace tokamak::invariance {

// Where two answers, one entry per choice, first differ; empty if nowhere. Ids, logprobs and their
// alternatives (floats by their bits), prompt logprobs, texts, finish reasons and seeds count. A
// choice of `company` that was cancelled must be the beginning of what it is alone.
std::string FirstDifference(const std::vector<OutputChunk>& company,
                            const std::vector<OutputChunk>& alone);

}  // namespace tokamak::invariance
