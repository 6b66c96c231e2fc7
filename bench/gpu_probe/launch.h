// Starting a kernel as a cluster of CTAs, or while the kernel ahead of it still runs.
#pragma once

#include <cuda_runtime.h>

#include "bench/gpu_probe/probe.h"

namespace probe {

struct LaunchShape {
  int grid, block;  // CTAs, threads of a CTA
  int shared_bytes = 0;
  int cluster = 1;         // CTAs that run together
  bool dependent = false;  // starts when the kernel ahead allows it, not only when that has ended
};

template <typename... Params, typename... Args>
void LaunchKernel(const LaunchShape& shape, cudaStream_t stream, void (*kernel)(Params...),
                  const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.grid));
  config.blockDim = dim3(static_cast<unsigned>(shape.block));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  if (shape.dependent) {
    cudaLaunchAttribute& dependent = attributes[config.numAttrs++];
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
  }
  PROBE_CHECK(cudaLaunchKernelEx(&config, kernel, args...));
}

}  // namespace probe
