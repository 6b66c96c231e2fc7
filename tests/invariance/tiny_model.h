// Tiny Llama models with random weights, one for every weight type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokamak/status.h"

namespace tokamak::invariance {

// "F32", ..., "MXFP4": every weight type of GGUF files. Then "mixed", whose tensors alternate
// between types, so that projections that run as one matrix differ in type.
std::vector<std::string> WeightTypes();

// The longest sequence of a tiny model: three splits of keys (256 positions each).
inline constexpr int kTinyContext = 768;

// Writes a model of two layers with grouped-query attention and a byte pair vocabulary. The weights
// are the same for all types, apart from rounding, and depend on the seed. kInvalidArgument for an
// unknown type.
inline constexpr uint64_t kTinySeed = 20240229;
Status WriteTinyModel(const std::string& weight_type, const std::string& path,
                      uint64_t seed = kTinySeed);

}  // namespace tokamak::invariance
