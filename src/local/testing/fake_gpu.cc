// A library that the program opens as its CUDA backend. Asynchronous like a GPU, with its own
// memory and without optional features, but computes in main memory. $TOKAMAK_FAKE_GPU_BYTES is
// that memory's size, $TOKAMAK_FAKE_GPUS says how many GPUs there are, and $TOKAMAK_FAKE_GPU_BROKEN
// which of them cannot be used.
#include <cstdlib>

#include "base/error.h"
#include "ops/cuda/plugin.h"
#include "ops/reference/reference_ops.h"
#include "runner/testing/queued_ops.h"

namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* tokamak_cuda_abi() {
  return tokamak::kCudaAbi;
}

extern "C" __attribute__((visibility("default"))) void tokamak_cuda_make_ops(
    const tokamak::CudaOptions* options, std::unique_ptr<tokamak::Ops>* ops,
    tokamak::Status* status) {
  const int last = options->device + options->num_devices - 1;
  const int64_t count = FromEnvironment("TOKAMAK_FAKE_GPUS", last + 1);
  if (last >= count) {
    *status = tokamak::Unavailable("GPUs {} to {} of {}", options->device, last, count);
    return;
  }
  if (FromEnvironment("TOKAMAK_FAKE_GPU_BROKEN", -1) == options->device) {
    *status = tokamak::Unavailable("GPU {} is broken", options->device);
    return;
  }
  *ops = tokamak::testing::MakeQueuedOps(
      tokamak::MakeReferenceOps(), /*seed=*/1,
      {.capabilities = {},
       .free_bytes = FromEnvironment("TOKAMAK_FAKE_GPU_BYTES", int64_t{1} << 30)});
}
