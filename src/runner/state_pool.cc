#include "runner/state_pool.h"

#include "base/error.h"

namespace tokamak {

Result<StatePool> StatePool::Create(Ops& ops, const nn::CacheLayout& cache, int32_t num_slots) {
  StatePool pool;
  pool.slot_bytes_ = cache.StateBytes();
  if (pool.slot_bytes_ == 0) return pool;
  const size_t bytes = static_cast<size_t>(pool.slot_bytes_) * static_cast<size_t>(num_slots);
  ASSIGN_OR_RETURN(pool.memory_, ops.Allocate(bytes, MemoryKind::kDevice));
  pool.layers_ = cache.StateViews(reinterpret_cast<float*>(pool.memory_.data()));
  return pool;
}

void StatePool::Fork(std::span<const ForkSequence> forks, Ops& ops, Stream& stream) {
  copies_.clear();
  for (const ForkSequence& fork : forks) {
    if (slot_bytes_ == 0 || fork.slot == fork.source) continue;
    copies_.push_back({.source = memory_.data() + fork.source * slot_bytes_,
                       .destination = memory_.data() + fork.slot * slot_bytes_});
  }
  if (copies_.empty()) return;
  ops.Run(CopyRanges{.ranges = copies_, .bytes = static_cast<size_t>(slot_bytes_)}, stream);
}

}  // namespace tokamak
