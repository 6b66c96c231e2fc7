// Memory of the CUDA backend: buffers that free themselves, and blocks that are used over and over.
// Code that takes blocks during a step reserves enough for kStepsInFlight steps at the start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/cuda/calls.h"
#include "ops/ops.h"

namespace tokamak::cuda {

// Steps between submission and Wait that pools have room for. Further steps in flight allocate
// blocks.
inline constexpr int kStepsInFlight = 4;

// cudaMalloc or cudaMallocHost; at least one byte. kResourceExhausted with the size, and for device
// memory what is free.
Result<Buffer> AllocateMemory(CallGuard& guard, size_t bytes, MemoryKind kind);

// Blocks of one kind of memory, in sizes of powers of two, kept when they are given back.
class BlockPool {
 public:
  struct Block {
    std::byte* data = nullptr;
    int size_class = 0;
  };

  BlockPool(CallGuard& guard, MemoryKind kind) : guard_(guard), kind_(kind) {}

  // Makes `count` blocks of `bytes` ahead of their use.
  Status Reserve(int count, size_t bytes);
  // A block of at least `bytes`, the smallest that is free. Allocates where there is none; a
  // failure is an error of the guard, and `data` is null.
  Block Take(size_t bytes);
  // Gives a block back. The next Take may hand it out at once. Device memory may be given back
  // while work that uses it is enqueued: its next use is behind that in the stream. Host memory
  // must not.
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
