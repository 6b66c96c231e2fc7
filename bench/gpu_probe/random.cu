// Random contents for the probe's buffers: times on zeros are not those of real data.
#include <cuda_bf16.h>

#include "bench/gpu_probe/probe.h"

namespace probe {
namespace {

__device__ uint32_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return static_cast<uint32_t>(x >> 32);
}

// The sum of four uniform bytes is close enough to a normal variable.
__global__ void FillBf16(__nv_bfloat16* out, size_t count, float scale, uint64_t seed) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint32_t bits = Mix(seed * 0x9e3779b97f4a7c15ULL + i);
    const int sum = static_cast<int>(__vsadu4(bits, 0)) - 510;
    out[i] = __float2bfloat16(scale * static_cast<float>(sum) / 147.8f);
  }
}

__global__ void FillBits(uint32_t* out, size_t count, uint64_t seed) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    out[i] = Mix(seed * 0x9e3779b97f4a7c15ULL + i);
  }
}

}  // namespace

void FillRandomBf16(void* data, size_t count, float scale, uint64_t seed, cudaStream_t stream) {
  FillBf16<<<1024, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(data), count, scale, seed);
  PROBE_CHECK(cudaGetLastError());
}

void FillRandomBits(void* data, size_t bytes, uint64_t seed, cudaStream_t stream) {
  FillBits<<<1024, 256, 0, stream>>>(static_cast<uint32_t*>(data), bytes / 4, seed);
  PROBE_CHECK(cudaGetLastError());
}

}  // namespace probe
