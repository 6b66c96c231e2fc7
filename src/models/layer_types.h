// Which layers of a model see a sliding window only.
#pragma once

#include <vector>

#include "models/decoder.h"

namespace tokamak {

// [num_layers]. "layer_types" says it, one of "sliding_attention" and "full_attention" for each
// layer; `absent` is what its absence means.
std::vector<bool> ParseSlidingLayers(ConfigReader& reader, std::vector<bool> absent);

// Gives the layers that slide this window; 0: none has one.
void SetWindow(DecoderConfig& config, const std::vector<bool>& sliding, int32_t window);

}  // namespace tokamak
