// Attention with linear biases in place of positions that rotate. arXiv:2108.12409.
#pragma once

#include <cstdint>
#include <vector>

namespace tokamak::nn {

// What a head's scores lose per position of distance: [num_heads]. For a power of two, head i has
// 2^(-bias_max · (i + 1) / num_heads). Else the heads have those of the next power of two: every
// second one, the steeper of each pair first, then the others, as many as there are heads. Source:
// transformers, models/mpt.
std::vector<float> AlibiSlopes(int32_t num_heads, double bias_max);

}  // namespace tokamak::nn
