// The program's side of libtokamak_cuda.so. Knows nothing of CUDA.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/cuda/plugin.h"

namespace tokamak {
namespace {

constexpr const char* kLibrary = "libtokamak_cuda.so";

// The folder of the running program, with a slash; empty if it cannot be known.
std::string ProgramFolder() {
  std::vector<char> path(4096);
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  const std::string_view program(path.data(), static_cast<size_t>(length));
  return std::string(program.substr(0, program.rfind('/') + 1));
}

std::string FindLibrary() {
  if (const char* given = std::getenv("TOKAMAK_CUDA_LIBRARY"); given != nullptr && *given != 0) {
    return given;
  }
  const std::string folder = ProgramFolder();
  for (const char* place : {"", "../lib/"}) {
    const std::string path = folder + place + kLibrary;
    if (!folder.empty() && ::access(path.c_str(), R_OK) == 0) return path;
  }
  return kLibrary;  // the loader searches rpath, LD_LIBRARY_PATH and the system's folders
}

int64_t NumberFromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : 0;
}

}  // namespace

Result<std::unique_ptr<Ops>> MakeCudaOpsFrom(const std::string& library,
                                             const CudaOptions& options) {
  // Never closed, because the library's objects may live until the end of the process.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return Unavailable("the CUDA backend could not be opened: {}",
                       reason != nullptr ? reason : library);
  }
  const auto abi = reinterpret_cast<CudaAbiFunction>(::dlsym(handle, kCudaAbiSymbol));
  const auto make = reinterpret_cast<CudaFactoryFunction>(::dlsym(handle, kCudaFactorySymbol));
  if (abi == nullptr || make == nullptr) {
    return Internal("{} is not a CUDA backend of tokamak", library);
  }
  if (std::string_view(abi()) != kCudaAbi) {
    return Internal(
        "{} belongs to another build of tokamak (it says \"{}\", this program \"{}\"); "
        "build both together",
        library, abi(), kCudaAbi);
  }
  CudaOptions effective = options;
  if (effective.fail_call == 0) {
    effective.fail_call = NumberFromEnvironment("TOKAMAK_CUDA_FAIL_CALL");
  }
  if (effective.stall_event == 0) {
    effective.stall_event = NumberFromEnvironment("TOKAMAK_CUDA_STALL_EVENT");
  }
  std::unique_ptr<Ops> ops;
  Status status;
  make(&effective, &ops, &status);
  RETURN_IF_ERROR(status);
  return ops;
}

Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options) {
  const std::string library = FindLibrary();
  Result<std::unique_ptr<Ops>> ops = MakeCudaOpsFrom(library, options);
  if (library == kLibrary && ops.status().code() == StatusCode::kUnavailable) {
    return NotFound("{}; to build it: make CUDA=1", ops.status().message());
  }
  return ops;
}

}  // namespace tokamak
