// Shared memory of CTAs, and how a cluster's CTAs find each other's.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "ops/cuda/emulation/machine.h"
#include "ops/cuda/emulation/primitives.h"

namespace tokamak::cuda::emulation {
namespace {

constexpr size_t kPattern = 1024;  // bytes after which every swizzle repeats

}  // namespace

void* AddShared(Cta& cta, const void* site, size_t bytes, size_t alignment) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) != 0) {
    throw std::bad_alloc();
  }
  if (memory != nullptr) std::memset(memory, 0xff, bytes);
  // The system uses the first 1 KiB, as on GPUs.
  const SharedBlock* const last = cta.shared.empty() ? nullptr : &cta.shared.back();
  const size_t begin = last == nullptr ? 1 : (last->address + last->bytes) / kPattern + 1;
  const auto address =
      static_cast<uint32_t>(begin * kPattern + reinterpret_cast<uintptr_t>(memory) % kPattern);
  cta.shared.push_back({.site = site,
                        .bytes = bytes,
                        .address = address,
                        .memory = {memory, std::free},
                        .published = {}});
  return memory;
}

void* DynamicShared() { return CurrentThread().cta->shared.front().memory.get(); }

void* SharedVariable(const void* site, size_t bytes, size_t alignment) {
  const InMachine in;
  Cta& cta = *CurrentThread().cta;
  for (const SharedBlock& block : cta.shared) {
    if (block.site == site) return block.memory.get();
  }
  cta.static_shared_bytes += bytes;
  if (cta.static_shared_bytes > kDefaultShared) {
    Fail(fmt::format("{} bytes of shared variables; {} are allowed", cta.static_shared_bytes,
                     kDefaultShared));
  }
  return AddShared(cta, site, bytes, alignment);
}

SharedPlace FindShared(Cta& cta, const void* address) {
  for (SharedBlock& block : cta.shared) {
    const auto offset =
        static_cast<const std::byte*>(address) - static_cast<const std::byte*>(block.memory.get());
    if (offset >= 0 && static_cast<size_t>(offset) < block.bytes) {
      return {.block = &block, .offset = static_cast<size_t>(offset)};
    }
  }
  return {};
}

void* MapShared(const void* shared, int rank) {
  const InMachine in;
  Cta& mine = *CurrentThread().cta;
  const std::vector<Cta*>& ctas = mine.cluster->ctas;
  if (rank < 0 || rank >= static_cast<int>(ctas.size())) {
    Fail(fmt::format("rank {} in a cluster of {} CTAs", rank, ctas.size()));
  }
  Cta& other = *ctas[static_cast<size_t>(rank)];
  if (other.running == 0) Fail("shared memory of a CTA that has ended");
  const SharedPlace place = FindShared(mine, shared);
  if (place.block == nullptr) Fail("an address that is not in the CTA's shared memory");
  const SharedBlock& block = *place.block;
  for (const SharedBlock& theirs : other.shared) {
    if (theirs.site == block.site) {
      return static_cast<std::byte*>(theirs.memory.get()) + place.offset;
    }
  }
  void* const memory = AddShared(other, block.site, block.bytes, 16);
  return static_cast<std::byte*>(memory) + place.offset;
}

}  // namespace tokamak::cuda::emulation
