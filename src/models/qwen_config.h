// Shared by the Qwen2 and Qwen3 families.
#pragma once

#include <vector>

#include "models/decoder.h"

namespace tokamak {

// Reads the experts' fields and replaces the MLPs of MoE layers. `shape` has what the family sets.
void ParseQwenExperts(ConfigReader& reader, nn::MoeShape shape, DecoderConfig& config);

// The window, if "use_sliding_window" is set, else 0; and the layers that have it: without
// "layer_types", those from "max_window_layers" on.
int32_t ParseQwenWindow(ConfigReader& reader);
std::vector<bool> ParseQwenSlidingLayers(ConfigReader& reader, size_t num_layers);

}  // namespace tokamak
