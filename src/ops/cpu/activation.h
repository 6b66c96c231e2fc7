// Which type a weight's products take their activations in, and how they get it.
#pragma once

#include <cstdint>

#include "ops/cpu/isa.h"
#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tokamak::cpu {

// I8Blocks where all parts are in block formats, BF16 where all are BF16, if the ISA multiplies
// these; else, and for routers, F32.
DType ActivationOf(const WeightSpec& spec, const IsaKernels& isa);

// Elements [first, first + n) of a row of `out` from x[0, n), rounded to its type, BF16 or
// I8Blocks; whole blocks of the latter.
void RoundActivations(const IsaKernels& isa, const float* x, int64_t first, int64_t n,
                      const Tensor& out, int64_t row);

}  // namespace tokamak::cpu
