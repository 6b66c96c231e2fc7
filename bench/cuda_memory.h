// For cuda_memory.cc: runs a kernel and prints how it uses memory.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda_device.h"

namespace tokamak::cuda {

// The bytes that each of the kernels of a launch must read and write at least, by its name.
using LeastBytes = std::vector<std::pair<std::string, int64_t>>;

template <typename T>
T* At(const Buffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

class MemoryBench {
 public:
  explicit MemoryBench(Device& device) : device_(device) {}

  Device& device() { return device_; }
  Buffer Allocate(int64_t bytes) { return device_.Allocate(bytes); }
  // bf16 values around zero. They serve as f32 too: read as one, a pair has about the size of its
  // second value.
  Buffer Random(int64_t bytes) {
    Buffer buffer = device_.Allocate(bytes);
    device_.FillRandom(buffer, 1, 1);
    return buffer;
  }
  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    return device_.Upload(values);
  }

  // Prints a line for each kernel that is launched.
  void Run(const LeastBytes& least, const std::function<cudaError_t(cudaStream_t)>& launch);

 private:
  Device& device_;
};

// Products, experts and attention (cuda_memory_products.cc).
void RunProducts(MemoryBench& bench);
void RunExperts(MemoryBench& bench);
void RunAttention(MemoryBench& bench);

}  // namespace tokamak::cuda
