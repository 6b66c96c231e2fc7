// A library that the program opens as its CUDA backend. Asynchronous like a GPU, with its own
// memory and without optional features, but computes in main memory.
#include <cstdlib>

#include "ops/cuda/plugin.h"
#include "ops/reference/reference_ops.h"
#include "runner/testing/queued_ops.h"

extern "C" __attribute__((visibility("default"))) const char* tokamak_cuda_abi() {
  return tokamak::kCudaAbi;
}

extern "C" __attribute__((visibility("default"))) void tokamak_cuda_make_ops(
    const tokamak::CudaOptions* /*options*/, std::unique_ptr<tokamak::Ops>* ops,
    tokamak::Status* /*status*/) {
  constexpr int64_t kFreeBytes = int64_t{1} << 30;
  const char* free_bytes = std::getenv("TOKAMAK_FAKE_GPU_BYTES");
  *ops = tokamak::testing::MakeQueuedOps(
      tokamak::MakeReferenceOps(), /*seed=*/1,
      {.capabilities = {},
       .free_bytes = free_bytes != nullptr ? std::strtoll(free_bytes, nullptr, 10) : kFreeBytes});
}
