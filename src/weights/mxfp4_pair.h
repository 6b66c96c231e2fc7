// MXFP4 in gpt-oss's safetensors: elements in one tensor, scales in another.
#pragma once

#include <memory>

#include "weights/safetensors.h"

namespace tokamak {

// Returns the MXFP4 weight [experts, rows, 32 · groups] from two tensors of `model`: `blocks`, U8
// [experts, rows, groups, 16], has two 4-bit elements per byte, the earlier one in the low half;
// `scales`, U8 [experts, rows, groups], has the exponents. kDataLoss if they do not match.
Result<std::shared_ptr<const WeightSource>> MakeMxfp4Weight(const SafetensorsModel& model,
                                                            const StoredTensor& blocks,
                                                            const StoredTensor& scales);

}  // namespace tokamak
