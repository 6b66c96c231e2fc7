// The two functions that libtokamak_cuda.so exports.
#include "ops/cuda/plugin.h"

#include "ops/cuda/backend.h"

extern "C" __attribute__((visibility("default"))) const char* tokamak_cuda_abi() {
  return tokamak::kCudaAbi;
}

extern "C" __attribute__((visibility("default"))) void tokamak_cuda_make_ops(
    const tokamak::CudaOptions* options, std::unique_ptr<tokamak::Ops>* ops,
    tokamak::Status* status) {
  tokamak::Result<std::unique_ptr<tokamak::Ops>> made = tokamak::cuda::CudaOps::Make(*options);
  if (made.ok()) {
    *ops = *std::move(made);
  } else {
    *status = made.status();
  }
}
