// Work in streams, for the emulated libraries.
#pragma once

#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

namespace tokamak::cuda::emulation {

class Grid;

// Something in a stream.
struct Operation {
  std::function<bool()> go_on;     // called until it returns true, which says that it is done
  std::shared_ptr<Grid> kernel{};  // null: something else
};
// Makes an operation, anew for each time that a graph is launched.
using Recipe = std::function<Operation()>;

// Puts the host function `work` into the stream.
void EnqueueWork(std::function<void()> work, cudaStream_t stream);

}  // namespace tokamak::cuda::emulation
