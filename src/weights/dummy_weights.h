// Random weights for benchmarks and tests without a checkpoint. Internal to weights/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/dtype.h"
#include "weights/tensor_source.h"

namespace tokamak {

// Returns a source that has any requested tensor of any shape, but no optional ones (Has is always
// false). Values depend only on the seed, the tensor's name and the position. Matrices are about
// N(0, 0.02²), of type `dtype` (BF16 if rows are not whole blocks of it); those of experts are of
// type `expert_dtype`. Vectors are F32: norm weights near 1, others like matrices.
std::shared_ptr<TensorSource> MakeDummyTensors(std::string source, DType dtype, DType expert_dtype,
                                               uint64_t seed);

}  // namespace tokamak
