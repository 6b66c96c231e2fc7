// Tiny Llama models with random weights, one for every way to store a weight.
#pragma once

#include <string>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::invariance {

// "F32", ..., "MXFP4": every type that a weight in a GGUF file may have; then "mixed", whose
// tensors take turns, so that projections that run as one matrix differ in type.
std::vector<std::string> WeightTypes();

// The longest sequence of a tiny model: three splits of the keys (256 positions each).
inline constexpr int kTinyContext = 768;

// Writes a model of two layers with grouped heads and a vocabulary of byte pairs. The weights are
// the same in every type but for rounding. kInvalidArgument when there is no such type.
Status WriteTinyModel(const std::string& weight_type, const std::string& path);

}  // namespace tokamak::invariance
