// A bump allocator for the intermediate tensors of one step.
#pragma once

#include <cstddef>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace tokamak {

// Hands out views of one buffer. Reset frees everything, Release everything after a mark. An arena
// without memory (Arena::Counting) only measures; its tensors must not be read. Owned by the
// runner's thread.
class Arena {
 public:
  static constexpr size_t kAlignment = 256;  // bytes; a cache line and CUDA's texture alignment

  explicit Arena(Buffer buffer) : buffer_(std::move(buffer)), capacity_(buffer_.size()) {}
  static Arena Counting();

  // Returns an uninitialized tensor. Running out is a bug, because the profile run sized the arena.
  Tensor Allocate(DType dtype, Shape shape);

  size_t used() const { return used_; }
  size_t peak() const { return peak_; }  // largest used() so far
  void Release(size_t mark);             // `mark` is an earlier used()
  void Reset() { Release(0); }

 private:
  Arena() = default;

  Buffer buffer_;
  size_t capacity_ = 0;
  size_t used_ = 0;
  size_t peak_ = 0;
};

// Releases on destruction what was allocated within its scope.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.used()) {}
  ~ArenaScope() { arena_.Release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace tokamak
