#include "ops/cpu/weight_memory.h"

#include <memory>

#include "base/error.h"
#include "ops/host/host_ops.h"

namespace tokamak::cpu {
namespace {

constexpr size_t kAlignment = 64;
// A whole number of huge pages. The unused end of a slab is never touched, so it costs at most part
// of a page.
constexpr size_t kSlabBytes = size_t{32} << 20;

}  // namespace

Result<Buffer> WeightMemory::Allocate(size_t bytes) {
  if (bytes > kSlabBytes / 4) return AllocateHostMemory(bytes);
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ + rounded > slab_.size()) {
    ASSIGN_OR_RETURN(slab_, AllocateHostMemory(kSlabBytes));
    used_ = 0;
  }
  const size_t offset = used_;
  used_ += rounded;
  return slab_.Part(offset, bytes);
}

}  // namespace tokamak::cpu
