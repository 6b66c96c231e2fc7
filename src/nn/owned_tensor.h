// A tensor that owns its device memory.
#pragma once

#include <vector>

#include "ops/ops.h"

namespace tokamak::nn {

struct OwnedTensor {
  Buffer storage;
  Tensor tensor;
};

// Copies shape.elements() values to the device: f32 [shape].
Result<OwnedTensor> Upload(Ops& ops, const std::vector<float>& values, const Shape& shape);

}  // namespace tokamak::nn
