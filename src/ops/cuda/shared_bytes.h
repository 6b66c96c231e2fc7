// How much shared memory kernels may ask for.
#pragma once

#include <cuda_runtime_api.h>

namespace tokamak::cuda {

// Returns the most bytes of shared memory that a CTA of the current device may have, or 0 after an
// error.
inline int MaxSharedBytes() {
  int device = 0, bytes = 0;
  const bool is_known = cudaGetDevice(&device) == cudaSuccess &&
                        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                               device) == cudaSuccess;
  return is_known ? bytes : 0;
}

}  // namespace tokamak::cuda
