// The plain read, whose bandwidth is 100 % wherever a share of bandwidth is given.
#include "bench/gpu_probe/probe.h"
#include "bench/gpu_probe/tma_ptx.h"

namespace probe {
namespace {

__global__ void __launch_bounds__(512, 2)
    ReadAllKernel(const uint4* data, size_t count, uint32_t* out) {
  constexpr int kLoads = 8;
  const size_t stride = size_t{gridDim.x} * blockDim.x * kLoads;
  uint32_t bits = 0;
  for (size_t base = size_t{blockIdx.x} * blockDim.x * kLoads; base < count; base += stride) {
    uint4 values[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const size_t at = base + size_t(i) * blockDim.x + threadIdx.x;
      if (at < count) values[i] = LoadStream(data + at);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) bits ^= Fold(values[i]);
  }
  bits = __reduce_xor_sync(~0u, bits);
  if (threadIdx.x % 32 == 0) atomicXor(out, bits);
}

}  // namespace

Timing TimePlainRead(const void* data, size_t bytes, uint32_t* out, cudaStream_t stream) {
  return Time(stream, [&] {
    ReadAllKernel<<<SmCount() * 2, 512, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16,
                                                     out);
  });
}

}  // namespace probe
