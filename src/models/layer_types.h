// The layers of a model that have a sliding window.
#pragma once

#include <cstddef>
#include <vector>

#include "models/decoder.h"

namespace tokamak {

// [num_layers]. Reads "layer_types", which has "sliding_attention" or "full_attention" for each
// layer; `absent` is the default.
std::vector<bool> ParseSlidingLayers(ConfigReader& reader, std::vector<bool> absent);

// [num_layers]: false for each layer whose number, counted from 1, is a multiple of `interval`.
std::vector<bool> AllButEvery(size_t interval, size_t num_layers);

// Sets the window of the sliding layers; 0: none.
void SetWindow(DecoderConfig& config, const std::vector<bool>& sliding, int32_t window);

}  // namespace tokamak
