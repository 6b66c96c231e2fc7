// How CTAs that compute splits of one tile find the one that merges them.
#pragma once

#include <cstdint>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/device.cuh"

namespace tokamak::cuda {

// Returns whether this CTA is the last of the tile of `unit` to have written its split. All threads
// that wrote it call this; `sync` is a barrier among them, and thread 0 is one of them. `is_last`
// is in shared memory.
template <typename Sync>
__device__ bool IsLastSplit(const AttentionArgs& a, const AttentionUnit& unit, int64_t kv_head,
                            bool& is_last, Sync sync) {
  __threadfence();
  sync();
  if (threadIdx.x == 0) {
    int32_t* const counter = a.counters + int64_t{unit.partial} * a.cache.num_kv_heads + kv_head;
    is_last = atomicAdd(counter, 1) == unit.end_split - unit.begin_split - 1;
    if (is_last) *counter = 0;
    __threadfence();
  }
  sync();
  return is_last;
}

}  // namespace tokamak::cuda
