// Counts what the accesses of kernels to memory cost on a GPU, for tools/kernel_memory.py.
//
// On a GPU the lanes of a warp make an access together; here they run one after the other. What
// they access at one place in the code is put together by how often each lane has come there since
// all lanes of the warp last met: at a barrier, or when they exchanged values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

namespace tokamak::cuda::emulation {

struct Cta;
struct Warp;

// Sectors of 32 bytes of global memory, or wavefronts of shared memory: rounds in which each of its
// 32 banks gives one word.
struct MemoryCost {
  uint64_t accesses = 0;  // of warps
  uint64_t units = 0;
  uint64_t least = 0;  // that hold as many bytes as the lanes access
  void Add(uint64_t more, uint64_t least_of_them) {
    ++accesses;
    units += more;
    least += least_of_them;
  }
};

enum class AccessKind : uint8_t { kLoad, kStore, kSharedLoad, kSharedStore, kBox };
inline constexpr size_t kAccessKinds = 5;

struct KernelMemory {
  std::array<MemoryCost, kAccessKinds> costs;  // by AccessKind; a row of a TMA box counts as one
  std::map<std::pair<const void*, AccessKind>, MemoryCost> places;  // by return address
  std::unordered_map<uintptr_t, uint8_t> sectors;                   // 1: read, 2: written, 3: both
};

// The lanes of a warp that access memory together. Lanes may access the same bytes.
struct WarpAccess {
  static constexpr unsigned kLanes = 32;
  size_t bytes = 0;  // of each lane
  uint32_t lanes = 0;
  std::array<uintptr_t, kLanes> at = {};

  // Adds what it costs to a cost in sectors, or in wavefronts.
  void AddSectors(MemoryCost& cost) const;
  void AddWavefronts(MemoryCost& cost) const;
};

class MemoryTrace {
 public:
  // Traces from here on, until it is destroyed. One at a time.
  MemoryTrace() { current_ = this; }
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;
  ~MemoryTrace() { current_ = nullptr; }

  // By the kernel's address; of kernels that have ended.
  const std::map<const void*, KernelMemory>& kernels() const { return kernels_; }

  // Each of these does nothing without a trace. They are told of an access by the current CUDA
  // thread, if any, at a place in the code; of a row of a TMA box, or another copy that no lane
  // makes; that the current thread meets all others of its warp; that a kernel's CTA begins, or has
  // ended.
  static void NoteAccess(const void* place, const void* memory, size_t bytes, bool writes) {
    if (current_ != nullptr) current_->Access(place, memory, bytes, writes);
  }
  static void NoteCopy(const void* memory, size_t bytes, bool writes) {
    if (current_ != nullptr) current_->Copy(memory, bytes, writes);
  }
  static void NoteMeeting() {
    if (current_ != nullptr) current_->Meet();
  }
  static void NoteBegin(const Cta& cta);
  static void NoteEnd(const Cta& cta);

 private:
  // The accesses of a warp at one place.
  struct Place {
    const void* code = nullptr;
    AccessKind kind = AccessKind::kLoad;
    std::array<uint32_t, WarpAccess::kLanes> meetings = {};    // of a lane, when it came here last
    std::array<uint32_t, WarpAccess::kLanes> visits = {};      // since then
    std::map<std::pair<uint32_t, uint32_t>, WarpAccess> open;  // by meetings and visits
  };
  struct WarpTrace {
    std::array<uint32_t, WarpAccess::kLanes> meetings = {};
    std::unordered_map<uint64_t, Place> places;
  };

  void Access(const void* place, const void* memory, size_t bytes, bool writes);
  void Copy(const void* memory, size_t bytes, bool writes);
  void Meet();
  void Touch(KernelMemory& kernel, uintptr_t at, size_t bytes, bool writes);
  static void Add(KernelMemory& kernel, const Place& place, const WarpAccess& access);

  static inline MemoryTrace* current_ = nullptr;
  std::map<const void*, KernelMemory> kernels_;
  const void* begun_ = nullptr;  // the kernel of which a CTA began last
  std::unordered_map<const Warp*, WarpTrace> warps_;
};

}  // namespace tokamak::cuda::emulation
