// Which layers of a model see a sliding window only.
#pragma once

#include <cstddef>
#include <vector>

#include "models/decoder.h"

namespace tokamak {

// [num_layers]. "layer_types" says it, one of "sliding_attention" and "full_attention" for each
// layer; `absent` is what its absence means.
std::vector<bool> ParseSlidingLayers(ConfigReader& reader, std::vector<bool> absent);

// [num_layers]: false for each layer whose number, counted from 1, is a multiple of `interval`.
std::vector<bool> AllButEvery(size_t interval, size_t num_layers);

// Gives the layers that slide this window; 0: none has one.
void SetWindow(DecoderConfig& config, const std::vector<bool>& sliding, int32_t window);

}  // namespace tokamak
