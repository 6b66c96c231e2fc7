// Attention with linear biases (ALiBi) instead of RoPE. arXiv:2108.12409.
#pragma once

#include <cstdint>
#include <vector>

namespace tokamak::nn {

// [num_heads]: what a head's scores lose per position of distance. If num_heads is a power of two,
// head i has 2^(-bias_max · (i + 1) / num_heads). Otherwise the slopes are those of the next power
// of two: the second, fourth, ... of them, then the first, third, ..., until each head has one.
// Source: transformers, models/mpt.
std::vector<float> AlibiSlopes(int32_t num_heads, double bias_max);

}  // namespace tokamak::nn
