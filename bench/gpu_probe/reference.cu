// A simple kernel, to check products with.
#include "bench/gpu_probe/reference.h"

#include "bench/gpu_probe/probe.h"

namespace probe {
namespace {

// One warp per weight row. Leaves the largest ratio in `worst`, as the bits of a float >= 0.
__global__ void CompareProduct(const ProductOperands p, unsigned* worst) {
  const int64_t row = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= p.n) return;
  for (int token = 0; token < p.m; ++token) {
    double sum = 0, sizes = 0;
    for (int i = lane; i < p.k; i += 32) {
      const double product = static_cast<double>(__bfloat162float(p.w[row * p.k + i])) *
                             __bfloat162float(p.x[int64_t{token} * p.ldx + i]);
      sum += product;
      sizes += fabs(product);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(~0u, sum, distance);
      sizes += __shfl_xor_sync(~0u, sizes, distance);
    }
    const double error = fabs(__bfloat162float(p.y[int64_t{token} * p.n + row]) - sum);
    const double ratio = error / (fabs(sum) / 256 + sizes / 65536 + 1e-30);
    if (lane == 0) atomicMax(worst, __float_as_uint(ratio <= 1e30 ? float(ratio) : 1e30f));
  }
}

}  // namespace

double ErrorOverBound(const ProductOperands& operands, cudaStream_t stream) {
  const DeviceMemory worst(4);
  PROBE_CHECK(cudaMemsetAsync(worst.As(), 0, 4, stream));
  CompareProduct<<<static_cast<unsigned>((operands.n + 7) / 8), 256, 0, stream>>>(
      operands, worst.As<unsigned>());
  PROBE_CHECK(cudaGetLastError());
  float ratio = 0;
  PROBE_CHECK(cudaMemcpyAsync(&ratio, worst.As(), 4, cudaMemcpyDeviceToHost, stream));
  PROBE_CHECK(cudaStreamSynchronize(stream));
  return ratio;
}

}  // namespace probe
