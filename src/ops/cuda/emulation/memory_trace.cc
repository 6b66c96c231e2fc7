#include "ops/cuda/emulation/memory_trace.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "ops/cuda/emulation/machine.h"

namespace tokamak::cuda::emulation {
namespace {

constexpr uintptr_t kSectorBytes = 32;
constexpr uintptr_t kWordBytes = 4;
constexpr size_t kBanks = 32;
constexpr size_t kWavefrontBytes = kBanks * kWordBytes;
constexpr size_t kMostBytes = 16;  // that a lane accesses with one instruction
constexpr uint32_t kWholeWarp = 0xffffffff;
static_assert(WarpAccess::kLanes == kWarpLanes);

// Returns the numbers of the blocks of `block` bytes in which the lanes from `begin` to `end`
// access memory, ascending and each once.
std::vector<uintptr_t> Blocks(const WarpAccess& access, uintptr_t block, unsigned begin = 0,
                              unsigned end = kWarpLanes) {
  std::vector<uintptr_t> blocks;
  for (unsigned lane = begin; lane < end; ++lane) {
    if ((access.lanes >> lane & 1) == 0) continue;
    const uintptr_t last = (access.at[lane] + access.bytes - 1) / block;
    for (uintptr_t i = access.at[lane] / block; i <= last; ++i) blocks.push_back(i);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

// How many blocks hold so many bytes.
uint64_t Least(uint64_t bytes, uint64_t block) { return (bytes + block - 1) / block; }

}  // namespace

void WarpAccess::AddSectors(MemoryCost& cost) const {
  cost.Add(Blocks(*this, kSectorBytes).size(), Least(Blocks(*this, 1).size(), kSectorBytes));
}

// Lanes with vectors of 8 or 16 bytes take turns, as many at a time as fill the banks. If that many
// addresses are all that the warp has, every lane gets them in the first turn.
void WarpAccess::AddWavefronts(MemoryCost& cost) const {
  std::vector<uintptr_t> addresses;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) addresses.push_back(at[lane]);
  }
  std::sort(addresses.begin(), addresses.end());
  const auto num_addresses =
      static_cast<size_t>(std::unique(addresses.begin(), addresses.end()) - addresses.begin());
  const size_t at_a_time = kWavefrontBytes / std::max(bytes, size_t{kWordBytes});
  const size_t step = num_addresses <= at_a_time ? kWarpLanes : at_a_time;
  uint64_t wavefronts = 0;
  for (size_t begin = 0; begin < kWarpLanes; begin += step) {
    std::array<uint64_t, kBanks> words = {};
    for (const uintptr_t word : Blocks(*this, kWordBytes, static_cast<unsigned>(begin),
                                       static_cast<unsigned>(begin + step))) {
      ++words[word % kBanks];
    }
    wavefronts += *std::max_element(words.begin(), words.end());
  }
  cost.Add(wavefronts, Least(Blocks(*this, kWordBytes).size() * kWordBytes, kWavefrontBytes));
}

void MemoryTrace::Access(const void* place, const void* memory, size_t bytes, bool writes) {
  static bool is_busy = false;  // this code itself may use functions that are instrumented
  if (is_busy || !HasThread() || bytes == 0) return;
  is_busy = true;
  const Thread& thread = CurrentThread();
  bool is_shared = false;
  for (Cta* cta : thread.cta->cluster->ctas) {
    is_shared = is_shared || FindShared(*cta, memory).block != nullptr;
  }
  const unsigned lane = thread.number % kWarpLanes;
  if (is_shared || IsGlobal(memory)) {  // else registers, arguments, or the emulator's own
    KernelMemory& kernel = kernels_[thread.cta->grid->launch().kernel];
    const auto first = reinterpret_cast<uintptr_t>(memory);
    if (!is_shared) Touch(kernel, first, bytes, writes);
    const auto kind = static_cast<AccessKind>((is_shared ? 2 : 0) + (writes ? 1 : 0));
    WarpTrace& warp = warps_[thread.warp];
    // A struct is moved in pieces of its alignment, which divides its size.
    const size_t size = std::min(bytes & -bytes, kMostBytes);
    for (size_t done = 0; done < bytes; done += size) {
      const uint64_t key = reinterpret_cast<uintptr_t>(place) << 16 | (done / size & 0xff) << 8 |
                           static_cast<uint64_t>(std::countr_zero(size)) << 3 |
                           static_cast<uint64_t>(kind);
      Place& here = warp.places[key];
      here.code = place;
      here.kind = kind;
      if (here.meetings[lane] != warp.meetings[lane]) {
        here.meetings[lane] = warp.meetings[lane];
        here.visits[lane] = 0;
      }
      const std::pair visit(here.meetings[lane], here.visits[lane]++);
      WarpAccess& access = here.open[visit];
      access.bytes = size;
      access.lanes |= 1u << lane;
      access.at[lane] = first + done;
      if (access.lanes != kWholeWarp) continue;
      Add(kernel, here, access);
      here.open.erase(visit);
    }
  }
  is_busy = false;
}

void MemoryTrace::Copy(const void* memory, size_t bytes, bool writes) {
  if (!IsGlobal(memory) || bytes == 0) return;
  KernelMemory& kernel = kernels_[begun_];
  const auto first = reinterpret_cast<uintptr_t>(memory);
  Touch(kernel, first, bytes, writes);
  kernel.costs[static_cast<size_t>(AccessKind::kBox)].Add(
      (first + bytes - 1) / kSectorBytes - first / kSectorBytes + 1, Least(bytes, kSectorBytes));
}

void MemoryTrace::Touch(KernelMemory& kernel, uintptr_t at, size_t bytes, bool writes) {
  for (uintptr_t sector = at / kSectorBytes; sector <= (at + bytes - 1) / kSectorBytes; ++sector) {
    kernel.sectors[sector] |= writes ? 2 : 1;
  }
}

void MemoryTrace::Add(KernelMemory& kernel, const Place& place, const WarpAccess& access) {
  const bool is_shared =
      place.kind == AccessKind::kSharedLoad || place.kind == AccessKind::kSharedStore;
  for (MemoryCost* cost :
       {&kernel.costs[static_cast<size_t>(place.kind)], &kernel.places[{place.code, place.kind}]}) {
    is_shared ? access.AddWavefronts(*cost) : access.AddSectors(*cost);
  }
}

void MemoryTrace::Meet() {
  const Thread& thread = CurrentThread();
  ++warps_[thread.warp].meetings[thread.number % kWarpLanes];
}

void MemoryTrace::NoteBegin(const Cta& cta) {
  if (current_ != nullptr) current_->begun_ = cta.grid->launch().kernel;
}

void MemoryTrace::NoteEnd(const Cta& cta) {
  if (current_ == nullptr) return;
  KernelMemory& kernel = current_->kernels_[cta.grid->launch().kernel];
  for (const Warp& warp : cta.warps) {
    const auto found = current_->warps_.find(&warp);
    if (found == current_->warps_.end()) continue;
    for (const auto& [key, place] : found->second.places) {
      for (const auto& [visit, access] : place.open) Add(kernel, place, access);
    }
    current_->warps_.erase(found);
  }
}

}  // namespace tokamak::cuda::emulation
