#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace probe {

// y[M, N] = x[M, K] W[N, K]^T in bf16; rows of x are `ldx` apart, all others contiguous.
struct ProductOperands {
  const __nv_bfloat16 *w, *x;
  __nv_bfloat16* y;
  int64_t n;
  int k, ldx, m;
};

// The largest error of y, compared with sums in f64, over what rounding may cost: 2^-8 of the
// result and 2^-16 of the sum of its products' sizes. Above 1, y is wrong.
double ErrorOverBound(const ProductOperands& operands, cudaStream_t stream);

}  // namespace probe
