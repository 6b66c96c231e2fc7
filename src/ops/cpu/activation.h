// The activation type of a weight's products, and rounding to it.
#pragma once

#include <cstdint>

#include "ops/cpu/isa.h"
#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tokamak::cpu {

// I8Blocks if all parts have block formats and BF16 if all are BF16, provided that the ISA
// multiplies them; else, and for routers, F32.
DType ActivationOf(const WeightSpec& spec, const IsaKernels& isa);

// Rounds x[0, n) to elements [first, first + n) of row `row` of `out`, which is BF16 or I8Blocks
// (whole blocks).
void RoundActivations(const IsaKernels& isa, const float* x, int64_t first, int64_t n,
                      const Tensor& out, int64_t row);

}  // namespace tokamak::cpu
