// Launches and shared memory, written so that nvcc and the emulator (ops/cuda/emulation) both take
// them: `<<<>>>` and `__shared__` appear nowhere else (tools/check_kernels.py).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tokamak::cuda {

// How the CTAs of a launch are grouped, and whether the launch overlaps with the kernel ahead of
// it.
struct CtaGroups {
  unsigned cluster = 1;      // neighbours along x that form a cluster
  bool cooperative = false;  // all CTAs are resident at once, or the launch fails
  // May start before the kernel ahead has ended. It must call ptx::WaitForKernelAhead before it
  // reads what that one writes, or writes what that one reads. At least one thread must always call
  // it, because the kernels behind rely on that.
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

// Whether the current device runs dependents: GPUs before Hopper do not. A kernel for all GPUs is
// launched by LaunchDependent, and its ptx::WaitForKernelAhead does nothing on those.
inline bool HasDependents() {
  int device = 0;
  int major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

// LaunchKernel as a dependent, where the device has them.
template <typename... Params, typename... Args>
cudaError_t LaunchDependent(void (*kernel)(Params...), dim3 grid, dim3 block, cudaStream_t stream,
                            Args&&... args) {
  return LaunchGroups({.dependent = HasDependents()}, kernel, grid, block, 0, stream,
                      std::forward<Args>(args)...);
}

// Lets `kernel` be launched with `bytes` of dynamic shared memory: more than 48 KiB must be asked
// for. It is not a stream operation, so a capture does not see it.
template <typename... Params>
cudaError_t AllowSharedMemory(void (*kernel)(Params...), size_t bytes) {
  if (bytes <= 48 << 10) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

// The element of DYNAMIC_SHARED for boxes of TMA and operands of wgmma: a swizzle repeats after
// 1024 bytes.
struct alignas(1024) SwizzleAligned {
  uint8_t bytes[1024];
};

}  // namespace tokamak::cuda

// SHARED(name, type): a variable of the CTA in shared memory, uninitialized; arrays too:
// SHARED(tile, float[32][33]). The type must have a trivial constructor.
//
// DYNAMIC_SHARED(name, type): the shared memory that the launch asked for, as an array of
// `type` and aligned for it. In one source file equal names must have equal types.
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
