// Memory of the CUDA backend: buffers that free themselves, and pools of blocks that are used
// again. Code that takes blocks during a step reserves enough of them for kStepsInFlight steps at
// load.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cuda/calls.h"
#include "ops/ops.h"

namespace tokamak::cuda {

// Number of steps in flight for which pools have blocks from the start: one more than 8 GPUs can be
// stages. Further ones allocate.
inline constexpr int kStepsInFlight = 9;

// Returns memory from cudaMalloc or cudaHostAlloc, at least one byte. The message of
// kResourceExhausted has the size, and for device memory also how much is free.
Result<Buffer> AllocateMemory(CallGuard& guard, size_t bytes, MemoryKind kind);

// Keeps blocks of one kind of memory. Their sizes are powers of two, at least 4 KiB.
class BlockPool {
 public:
  struct Block {
    std::byte* data = nullptr;
    int size_class = 0;
  };

  BlockPool(CallGuard& guard, MemoryKind kind) : guard_(guard), kind_(kind) {}

  // Allocates `count` blocks of `bytes`, rounded up to a power of two.
  Status Reserve(int count, size_t bytes);
  // Returns the smallest free block of at least `bytes`, or allocates one. If that fails, the guard
  // keeps the error and `data` is null.
  Block Take(size_t bytes);
  // Gives a block back; the next Take may return it. Device memory may be given back while enqueued
  // work still uses it, because its next use comes later in the same stream. Pinned memory may not.
  void Give(Block block);

 private:
  static constexpr int kNumClasses = 40;
  static int ClassOf(size_t bytes);

  CallGuard& guard_;
  const MemoryKind kind_;
  std::vector<Buffer> memory_;
  std::array<std::vector<Block>, kNumClasses> free_;
  std::array<size_t, kNumClasses> num_blocks_{};
};

}  // namespace tokamak::cuda
