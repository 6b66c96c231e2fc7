// A kernel that never ends, for tests of what waits for it.
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace tokamak::cuda {
namespace {

__global__ void StallKernel(unsigned nanoseconds) {
  for (;;) __nanosleep(nanoseconds);
}

}  // namespace

cudaError_t LaunchStall(cudaStream_t stream) {
  return LaunchKernel(StallKernel, 1, 1, 0, stream, 1000);
}

}  // namespace tokamak::cuda
