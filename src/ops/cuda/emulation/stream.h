// Work in streams, for the emulated libraries.
#pragma once

#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

namespace tokamak::cuda::emulation {

class Grid;

// A piece of work in a stream.
struct Operation {
  std::function<bool()> go_on;     // called until it returns true: the work is done
  std::shared_ptr<Grid> kernel{};  // null if the work is no kernel
};
// Makes an operation. A graph calls it again at each launch.
using Recipe = std::function<Operation()>;

// Puts what a recipe makes into the stream.
void EnqueueOperation(Recipe recipe, cudaStream_t stream);
// Does one operation of a stream that can go on, as queries and waits do. Returns false if none
// can.
bool AdvanceOne();
// Puts the host function `work` into the stream.
void EnqueueWork(std::function<void()> work, cudaStream_t stream);

}  // namespace tokamak::cuda::emulation
