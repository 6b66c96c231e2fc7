#include "ops/cuda/memory.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace tokamak::cuda {
namespace {

constexpr int kSmallestClass = 12;  // 4 KiB

// Frees memory, which waits for the device, unless that is lost. The backend may be gone, so no
// guard makes the call, and errors are ignored.
struct Free {
  bool device = false;
  std::shared_ptr<const bool> lost;

  void operator()(void* memory) const {
    if (*lost) return;
    (void)(device ? cudaFree(memory) : cudaFreeHost(memory));
  }
};

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
  return Buffer(std::shared_ptr<void>(memory, Free{.device = device, .lost = guard.lost()}), bytes);
}

int BlockPool::ClassOf(size_t bytes) {
  return std::max(kSmallestClass, static_cast<int>(std::bit_width(std::max<size_t>(bytes, 1) - 1)));
}

Status BlockPool::Reserve(int count, size_t bytes) {
  const int size_class = ClassOf(bytes);
  const auto size = size_t{1} << size_class;
  ASSIGN_OR_RETURN(Buffer buffer, AllocateMemory(guard_, static_cast<size_t>(count) * size, kind_));
  auto& num_blocks = num_blocks_[static_cast<size_t>(size_class)];
  num_blocks += static_cast<size_t>(count);
  std::vector<Block>& free = free_[static_cast<size_t>(size_class)];
  free.reserve(num_blocks);  // so that Give allocates nothing
  for (int i = 0; i < count; ++i) {
    free.push_back({buffer.data() + static_cast<size_t>(i) * size, size_class});
  }
  memory_.push_back(std::move(buffer));
  return Status();
}

BlockPool::Block BlockPool::Take(size_t bytes) {
  const auto is_free = [](const std::vector<Block>& blocks) { return !blocks.empty(); };
  const auto smallest = free_.begin() + ClassOf(bytes);
  auto free = std::find_if(smallest, free_.end(), is_free);
  if (free == free_.end()) {
    if (Status status = Reserve(1, bytes); !status.ok()) {
      guard_.Fail(std::move(status));
      return {};
    }
    free = smallest;
  }
  const Block block = free->back();
  free->pop_back();
  return block;
}

void BlockPool::Give(Block block) {
  if (block.data != nullptr) free_[static_cast<size_t>(block.size_class)].push_back(block);
}

}  // namespace tokamak::cuda
