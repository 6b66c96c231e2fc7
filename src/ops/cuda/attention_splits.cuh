// How CTAs that compute splits of one tile find the one that merges them.
#pragma once

#include <cstdint>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {

// Returns whether this CTA is the last of the tile of `unit` to have written its split. All threads
// that wrote it call this; `sync` is a barrier among them, and thread 0 is one of them. `is_last`
// is in shared memory.
template <typename Sync>
__device__ bool IsLastSplit(const AttentionArgs& a, const AttentionUnit& unit, int64_t kv_head,
                            bool& is_last, Sync sync) {
  sync();
  if (threadIdx.x == 0) {
    auto* const counter = reinterpret_cast<uint32_t*>(a.counters) +
                          int64_t{unit.partial} * a.cache.num_kv_heads + kv_head;
    const auto others = static_cast<uint32_t>(unit.end_split - unit.begin_split - 1);
    is_last = ptx::AddToCounter(counter, 1) == others;
    if (is_last) *counter = 0;
  }
  sync();
  return is_last;
}

}  // namespace tokamak::cuda
