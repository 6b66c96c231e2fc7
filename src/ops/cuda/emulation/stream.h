// Work in streams, for the emulated libraries.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

namespace tokamak::cuda::emulation {

// Something in a stream: called until it returns true, which says that it is done.
using Operation = std::function<bool()>;
// Makes it anew: a graph may be launched many times.
using Recipe = std::function<Operation()>;

// Puts the host function `work` into the stream.
void EnqueueWork(std::function<void()> work, cudaStream_t stream);

}  // namespace tokamak::cuda::emulation
