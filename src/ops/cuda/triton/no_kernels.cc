// The table of a build without TOKAMAK_TRITON.
#include "ops/cuda/triton/loader.h"

namespace tokamak::cuda {

std::span<const TritonKernel> TritonKernels() { return {}; }

}  // namespace tokamak::cuda
