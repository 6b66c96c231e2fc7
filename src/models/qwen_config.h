// What the families of Qwen2 and Qwen3 share.
#pragma once

#include <vector>

#include "models/decoder.h"

namespace tokamak {

// Reads the fields of the experts and puts MoE layers where the model has them; the others keep
// their MLP. `shape` has what the family adds.
void ParseQwenExperts(ConfigReader& reader, nn::MoeShape shape, DecoderConfig& config);

// The window of the Qwen families, which have one where "use_sliding_window" says so; 0: none. And
// their layers that see it: without "layer_types", those from "max_window_layers" on.
int32_t ParseQwenWindow(ConfigReader& reader);
std::vector<bool> ParseQwenSlidingLayers(ConfigReader& reader, size_t num_layers);

}  // namespace tokamak
