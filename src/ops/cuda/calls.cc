#include "ops/cuda/calls.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tokamak::cuda {
namespace {

// Returns "cudaMemcpyAsync" for "cudaMemcpyAsync(to, from, bytes)".
std::string_view NameOf(std::string_view call) { return call.substr(0, call.find('(')); }

constexpr std::array<std::string_view, 6> kAllocations = {
    "cudaMalloc",           "cudaHostAlloc",
    "cudaGraphInstantiate", "cudaStreamCreateWithFlags",
    "cublasLtCreate",       "cudaEventCreateWithFlags"};
constexpr std::array<std::string_view, 6> kSynchronizations = {
    "cudaStreamSynchronize", "cudaStreamQuery", "cudaDeviceSynchronize",
    "cudaEventSynchronize",  "cudaMemcpy",      "cudaMemset"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

void CallGuard::Count(std::string_view call) {
  const std::string_view name = NameOf(call);
  if (Contains(kAllocations, name)) {
    ++counts_->allocations;
  } else if (Contains(kSynchronizations, name)) {
    ++counts_->synchronizations;
  } else {
    ++counts_->others;
  }
}

bool CallGuard::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
  return false;
}

void CallGuard::Lose(Status status) {
  *is_lost_ = true;
  Fail(std::move(status));
}

void CallGuard::SelectDevice() {
  thread_local int selected = -1;
  if (selected == device_) return;
  selected = device_;
  if (const cudaError_t error = cudaSetDevice(device_); error != cudaSuccess) {
    Fail(Describe("cudaSetDevice", error));
  }
}

Status CallGuard::Describe(std::string_view call, std::string_view what) {
  return Internal("CUDA: {}: {}", NameOf(call), what);
}

Status CallGuard::Describe(std::string_view call, cudaError_t error) {
  (void)cudaGetLastError();  // so that the next call does not report this error again
  const std::string text = fmt::format("CUDA: {}: {} ({})", NameOf(call), cudaGetErrorString(error),
                                       cudaGetErrorName(error));
  return Status(
      error == cudaErrorMemoryAllocation ? StatusCode::kResourceExhausted : StatusCode::kInternal,
      text);
}

Status CallGuard::Describe(std::string_view call, cublasStatus_t error) {
  return Internal("CUDA: {}: {}", NameOf(call), cublasLtGetStatusName(error));
}

Status CallGuard::Describe(std::string_view call, NcclResult error) {
  return Internal("NCCL: {}: {} (NCCL_DEBUG=WARN says more)", NameOf(call), cuda::Describe(error));
}

}  // namespace tokamak::cuda
