// MXFP4 as gpt-oss's safetensors hold it: the elements in one tensor, the scales in another.
#pragma once

#include <memory>

#include "weights/safetensors.h"

namespace tokamak {

// The weight [experts, rows, 32 · groups] of type MXFP4 whose 4-bit elements are `blocks`, U8
// [experts, rows, groups, 16] with the earlier element in the lower half of a byte, and whose
// exponents are `scales`, U8 [experts, rows, groups]. Both are the model's. kDataLoss when they do
// not fit.
Result<std::shared_ptr<const WeightSource>> MakeMxfp4Weight(const SafetensorsModel& model,
                                                            const StoredTensor& blocks,
                                                            const StoredTensor& scales);

}  // namespace tokamak
