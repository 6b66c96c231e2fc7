// Launches and shared memory, written so that nvcc and the emulator (ops/cuda/emulation) both take
// them: `<<<>>>` and `__shared__` appear nowhere else (tools/check_kernels.py).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tokamak::cuda {

// How the CTAs of a launch are grouped, and whether it may overlap with the kernel ahead of it in
// the stream.
struct CtaGroups {
  unsigned cluster = 1;      // neighbours along x that form a cluster
  bool cooperative = false;  // all CTAs are resident at once, or the launch fails
  // The kernel may start before the one ahead has ended. It must call ptx::WaitForKernelAhead
  // before it reads what the kernel ahead writes, or writes what that reads. At least one thread
  // must always call it, because the kernels behind rely on that.
  bool dependent = false;
};

template <typename... Params, typename... Args>
cudaError_t LaunchGroups(const CtaGroups& groups, void (*kernel)(Params...), dim3 grid, dim3 block,
                         size_t shared, cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute attributes[3] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  if (groups.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {groups.cluster, 1, 1};
  }
  if (groups.cooperative) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  if (groups.dependent) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  (void)cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
  return cudaGetLastError();
}

// Returns what kernel<<<grid, block, shared, stream>>>(args...) leaves for cudaGetLastError.
template <typename... Params, typename... Args>
cudaError_t LaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
                         cudaStream_t stream, Args&&... args) {
  return LaunchGroups({}, kernel, grid, block, shared, stream, std::forward<Args>(args)...);
}

// Returns whether the current device has dependent launches; GPUs before Hopper do not. Launch a
// kernel for all GPUs with LaunchDependent: on GPUs before Hopper its ptx::WaitForKernelAhead does
// nothing.
inline bool HasDependents() {
  int device = 0;
  int major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

// Like LaunchKernel, but as a dependent launch if the device has those.
template <typename... Params, typename... Args>
cudaError_t LaunchDependent(void (*kernel)(Params...), dim3 grid, dim3 block, cudaStream_t stream,
                            Args&&... args) {
  return LaunchGroups({.dependent = HasDependents()}, kernel, grid, block, 0, stream,
                      std::forward<Args>(args)...);
}

// Lets `kernel` be launched with `bytes` of dynamic shared memory; CUDA requires this above 48 KiB.
// Not a stream operation, so it may be called during a capture.
template <typename... Params>
cudaError_t AllowSharedMemory(void (*kernel)(Params...), size_t bytes) {
  if (bytes <= 48 << 10) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// The type for DYNAMIC_SHARED if it holds boxes of TMA or operands of wgmma. These need the
// alignment, because a swizzle repeats after 1024 bytes.
struct alignas(1024) SwizzleAligned {
  uint8_t bytes[1024];
};

}  // namespace tokamak::cuda

// SHARED(name, type): declares an uninitialized variable in the CTA's shared memory. It may be an
// array: SHARED(tile, float[32][33]). The type must have a trivial constructor.
//
// DYNAMIC_SHARED(name, type): declares the shared memory that the launch asked for, as an array of
// `type` and aligned for it. Within one source file, equal names must have equal types.
#ifdef __CUDACC__
#define SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name
#define DYNAMIC_SHARED(name, type) extern __shared__ type name[]
#else
#define SHARED(name, ...)                                           \
  auto& name = ::tokamak::cuda::emulation::Shared<__VA_ARGS__>([] { \
    static char site;                                               \
    return &site;                                                   \
  }())
#define DYNAMIC_SHARED(name, type) \
  type* const name = static_cast<type*>(::tokamak::cuda::emulation::DynamicShared())
#endif
