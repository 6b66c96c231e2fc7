// Every call of CUDA, cuBLASLt and NCCL that a backend makes goes through its CallGuard, which
// keeps the first error.
//
// After an error the guard makes no further calls: what is enqueued is dropped, so nothing waits
// for work that will not come, and Ops::Await and Ops::Synchronize report that first error. There
// is no way back; a process that wants to go on makes a new backend (and after an error that
// corrupted the CUDA context, such as an illegal address, a new process).
//
// A device that does not finish its work is lost. Whatever would wait for it, such as giving its
// memory back, is left to the end of the process.
//
// Owner: the backend's thread.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/nccl.h"
#include "tokamak/status.h"

namespace tokamak::cuda {

class CallGuard {
 public:
  explicit CallGuard(const CudaOptions& options)
      : device_(options.device), fail_call_(options.fail_call), counts_(options.counts) {}
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  // Makes a call during a step. Returns whether it was made and succeeded. `call` is its source
  // text.
  template <typename F>
  bool Run(const char* call, F&& make) {
    if (!status_.ok()) return false;
    if (Injected()) return Fail(Describe(call, "an error injected by fail_call"));
    if (counts_ != nullptr) Count(call);
    SelectDevice();
    const auto result = make();
    if (static_cast<int>(result) == 0) return true;
    return Fail(Describe(call, result));
  }

  // Makes a call while loading. An error for lack of memory is returned but not kept, so that the
  // caller can report it and go on.
  template <typename F>
  Status Try(const char* call, F&& make) {
    if (!status_.ok() || Run(call, std::forward<F>(make))) return status_;
    Status status = status_;
    if (status.code() == StatusCode::kResourceExhausted) status_ = Status();
    return status;
  }

  // Notes an error that no call returned.
  bool Fail(Status status);

  // Marks the device as lost and keeps that error.
  void Lose(Status status);
  // Whether the device is lost. The value outlives the guard.
  const std::shared_ptr<const bool>& lost() const { return lost_; }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  int device() const { return device_; }
  int64_t num_calls() const { return num_calls_; }

  // Selects this backend's device for the calling thread. CUDA keeps the choice per thread. One
  // thread may serve the backends of several ranks in turn, while they are loaded.
  void SelectDevice();

 private:
  void Count(std::string_view call);
  bool Injected() { return ++num_calls_ == fail_call_; }
  static Status Describe(std::string_view call, std::string_view what);
  Status Describe(std::string_view call, cudaError_t error);
  Status Describe(std::string_view call, cublasStatus_t error);
  Status Describe(std::string_view call, NcclResult error);

  const int device_;
  const int64_t fail_call_;       // number (from 1) of the call that fails unmade; 0: none
  CudaCallCounts* const counts_;  // or null
  int64_t num_calls_ = 0;
  Status status_;  // the first error
  const std::shared_ptr<bool> is_lost_ = std::make_shared<bool>(false);
  const std::shared_ptr<const bool> lost_ = is_lost_;
};

}  // namespace tokamak::cuda

// CUDA_RUN(guard, cudaMemcpyAsync(...)): during a step.  CUDA_TRY: while loading.
#define CUDA_RUN(guard, call) (guard).Run(#call, [&] { return (call); })
#define CUDA_TRY(guard, call) (guard).Try(#call, [&] { return (call); })
