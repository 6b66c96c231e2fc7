// Shared by the Qwen2 and Qwen3 families.
#pragma once

#include <vector>

#include "models/decoder.h"

namespace tokamak {

// Reads the experts' fields into config.moe and finds the MoE layers.
void ParseQwenExperts(ConfigReader& reader, DecoderConfig& config);

// ParseQwenWindow returns 0 unless "use_sliding_window" is set. Without "layer_types", the layers
// from "max_window_layers" on have the window.
int32_t ParseQwenWindow(ConfigReader& reader);
std::vector<bool> ParseQwenSlidingLayers(ConfigReader& reader, size_t num_layers);

}  // namespace tokamak
