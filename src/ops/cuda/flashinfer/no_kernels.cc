// A build without TOKAMAK_FLASHINFER. The backend asks HasFlashInfer before it launches anything.
#include "ops/cuda/flashinfer/kernels.h"

namespace tokamak::cuda {

bool HasFlashInfer() { return false; }

cudaError_t LaunchTableStarts(const Tensor& /*rows*/, const Tensor& /*tables*/,
                              const FlashInferStep& /*step*/, cudaStream_t /*stream*/) {
  return cudaErrorSymbolNotFound;
}

cudaError_t LaunchFlashInfer(const Attention& /*op*/, const FlashInferStep& /*step*/,
                             cudaStream_t /*stream*/) {
  return cudaErrorSymbolNotFound;
}

}  // namespace tokamak::cuda
