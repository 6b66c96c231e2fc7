#include "ops/cuda/memory.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace tokamak::cuda {
namespace {

constexpr int kSmallestClass = 12;  // 4 KiB

// The memory's owner may be gone: no guard here, and an error has nobody to tell.
void FreeDevice(void* memory) { (void)cudaFree(memory); }
void FreeHost(void* memory) { (void)cudaFreeHost(memory); }

std::string FreeMemoryNote() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "";
  return fmt::format("; {} of {} MiB are free", free >> 20, total >> 20);
}

}  // namespace

Result<Buffer> AllocateMemory(CallGuard& guard, size_t bytes, MemoryKind kind) {
  void* memory = nullptr;
  const size_t size = std::max<size_t>(bytes, 1);
  const bool device = kind == MemoryKind::kDevice;
  const Status status = device
                            ? CUDA_TRY(guard, cudaMalloc(&memory, size))
                            : CUDA_TRY(guard, cudaHostAlloc(&memory, size, cudaHostAllocDefault));
  if (status.code() == StatusCode::kResourceExhausted) {
    return ResourceExhausted("{} bytes of {} memory could not be allocated{}", bytes,
                             device ? "device" : "pinned host", device ? FreeMemoryNote() : "");
  }
  RETURN_IF_ERROR(status);
  return Buffer(std::shared_ptr<void>(memory, device ? &FreeDevice : &FreeHost), bytes);
}

int BlockPool::ClassOf(size_t bytes) {
  return std::max(kSmallestClass, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)));
}

Status BlockPool::Reserve(int count, size_t bytes) {
  const int size_class = ClassOf(bytes);
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(Buffer buffer, AllocateMemory(guard_, size_t{1} << size_class, kind_));
    free_[static_cast<size_t>(size_class)].push_back({buffer.data(), size_class});
    memory_.push_back(std::move(buffer));
  }
  return Status();
}

BlockPool::Block BlockPool::Take(size_t bytes) {
  const int size_class = ClassOf(bytes);
  std::vector<Block>& free = free_[static_cast<size_t>(size_class)];
  if (free.empty()) {
    if (Status status = Reserve(1, bytes); !status.ok()) {
      guard_.Fail(std::move(status));
      return {};
    }
  }
  const Block block = free.back();
  free.pop_back();
  return block;
}

void BlockPool::Give(Block block) {
  if (block.data != nullptr) free_[static_cast<size_t>(block.size_class)].push_back(block);
}

}  // namespace tokamak::cuda
