#include "ops/cuda/nccl.h"

#include <dlfcn.h>

#include "base/error.h"

namespace tokamak::cuda {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

// Looks a function up; notes the name of one that the library lacks.
template <typename Function>
void Find(void* library, const char* name, Function& function, const char*& missing) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) missing = name;
}

}  // namespace

Result<Nccl> OpenNccl() {
  // Never closed: its threads may run until the process ends.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    return Unavailable(
        "several ranks on GPUs need NCCL: {}; install it (libnccl2), or name its folder in "
        "LD_LIBRARY_PATH",
        reason != nullptr ? reason : kLibrary);
  }
  Nccl nccl;
  const char* missing = nullptr;
  Find(library, "ncclGetUniqueId", nccl.get_unique_id, missing);
  Find(library, "ncclCommInitRank", nccl.comm_init_rank, missing);
  Find(library, "ncclCommDestroy", nccl.comm_destroy, missing);
  Find(library, "ncclCommAbort", nccl.comm_abort, missing);
  Find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error, missing);
  Find(library, "ncclAllGather", nccl.all_gather, missing);
  Find(library, "ncclSend", nccl.send, missing);
  Find(library, "ncclRecv", nccl.receive, missing);
  if (missing != nullptr) return Unavailable("{} lacks {}: it is too old", kLibrary, missing);
  return nccl;
}

}  // namespace tokamak::cuda
