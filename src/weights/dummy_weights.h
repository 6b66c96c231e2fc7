// Random weights for measuring and testing without a checkpoint. Internal to weights/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/dtype.h"
#include "weights/tensor_source.h"

namespace tokamak {

// Has any tensor of any shape that is asked for, and no optional ones (Has is always false). Values
// depend on the seed, the tensor's name and the position alone. Matrices are about N(0, 0.02²), of
// type `dtype` (BF16 where rows are not whole blocks of it); vectors are F32: norm weights near 1,
// others like matrices. Matrices of experts are of type `expert_dtype`.
std::shared_ptr<TensorSource> MakeDummyTensors(std::string source, DType dtype, DType expert_dtype,
                                               uint64_t seed);

}  // namespace tokamak
