// Dummy weights, made where they are used: bf16 [rows, cols], by a formula of row and column alone
// (ops/random_weight.h). Bound by the 2 bytes that each element writes.
//
// Compiled with -fmad=false: bits equal the host's.
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "quant/half.h"

namespace tokamak::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void RandomWeightKernel(RandomWeight weight, int64_t cols, uint16_t* out) {
  const int64_t row = blockIdx.x;
  const uint64_t row_seed = weight.RowSeed(row);
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    out[row * cols + i] = FloatToBFloat16(weight.At(row_seed, i));
  }
}

}  // namespace

cudaError_t LaunchRandomWeight(const RandomWeight& weight, int64_t rows, int64_t cols,
                               uint16_t* out, cudaStream_t stream) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  return LaunchKernel(RandomWeightKernel, static_cast<unsigned>(rows), kThreads, 0, stream, weight,
                      cols, out);
}

}  // namespace tokamak::cuda
