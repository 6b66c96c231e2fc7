// The part of NCCL's API that the backend uses, with NCCL's numbers. It is declared here so that a
// build needs no NCCL. The library is opened when there are several ranks; it must be libnccl.so.2.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tokamak/status.h"

struct ncclComm;

namespace tokamak::cuda {

// ncclComm_t, ncclUniqueId, ncclResult_t and ncclDataType_t.
using NcclComm = ncclComm*;
struct NcclId {
  char bytes[128];
};
enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
enum class NcclType : int { kInt8 = 0 };

struct Nccl {
  NcclResult (*get_unique_id)(NcclId* id);
  NcclResult (*comm_init_rank)(NcclComm* comm, int size, NcclId id, int rank);
  NcclResult (*comm_destroy)(NcclComm comm);
  NcclResult (*comm_abort)(NcclComm comm);
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* error);
  NcclResult (*all_gather)(const void* send, void* receive, size_t count, NcclType type,
                           NcclComm comm, cudaStream_t stream);
  NcclResult (*send)(const void* data, size_t count, NcclType type, int to, NcclComm comm,
                     cudaStream_t stream);
  NcclResult (*receive)(void* data, size_t count, NcclType type, int from, NcclComm comm,
                        cudaStream_t stream);
};

// Opens the library, or the emulator's (emulation/nccl.cc). kUnavailable, with the reason, without
// one.
Result<Nccl> OpenNccl();

constexpr const char* Describe(NcclResult result) {
  switch (result) {
    case NcclResult::kSuccess:
      return "success";
    case NcclResult::kUnhandledCudaError:
      return "a call of CUDA failed";
    case NcclResult::kSystemError:
      return "a call of the system failed";
    case NcclResult::kInternalError:
      return "internal error";
    case NcclResult::kInvalidArgument:
      return "invalid argument";
    case NcclResult::kInvalidUsage:
      return "invalid usage";
    case NcclResult::kRemoteError:
      return "another rank failed";
    case NcclResult::kInProgress:
      return "in progress";
  }
  return "unknown error";
}

}  // namespace tokamak::cuda
