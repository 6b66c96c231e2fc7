// What the program and libtokamak_cuda.so agree on.
//
// The library is opened at run time and returns C++ objects: Ops, PackedWeight, Buffer, Status.
// That is safe because both sides come from one build. kCudaAbi proves it before anything else
// crosses: it has the compiler's version and a digest of the headers of everything that crosses
// (set by CMake). The library links its own static copies of base, tensor, quant and the like, with
// hidden symbols. None of them has state that both sides must share; only the log level exists
// twice. Objects are destroyed by their own virtual functions or deleters, which lie in the
// library, so it stays loaded until the process ends. Both sides use the same libstdc++ and the
// same heap. No exception crosses.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/cuda/cuda_ops.h"
#include "ops/ops.h"

namespace tokamak {

inline constexpr const char* kCudaAbi = TOKAMAK_OPS_ABI " " __VERSION__;
inline constexpr const char* kCudaAbiSymbol = "tokamak_cuda_abi";
inline constexpr const char* kCudaFactorySymbol = "tokamak_cuda_make_ops";

extern "C" {
// The library's kCudaAbi.
using CudaAbiFunction = const char* (*)();
// Sets *ops, or *status to an error.
using CudaFactoryFunction = void (*)(const CudaOptions* options, std::unique_ptr<Ops>* ops,
                                     Status* status);
}

}  // namespace tokamak
