// How CTAs that compute parts of one tile's splits find the one that merges them.
#pragma once

#include <cstdint>

#include "ops/cuda/attention_layout.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {

// Returns whether this CTA is the last of the tile of `unit` to have written its splits. All threads
// that wrote them call this; `sync` is a barrier among them, and thread 0 is one of them. `is_last`
// is in shared memory.
template <typename Sync>
__device__ bool IsLastPart(const AttentionArgs& a, const AttentionUnit& unit, int64_t kv_head,
                            bool& is_last, Sync sync) {
  sync();
  if (threadIdx.x == 0) {
    auto* const counter = reinterpret_cast<uint32_t*>(a.counters) +
                          int64_t{unit.partial} * a.cache.num_kv_heads + kv_head;
    const auto own = static_cast<uint32_t>(unit.end_part - unit.begin_part);
    const auto all = static_cast<uint32_t>(unit.end_split - unit.begin_split);
    is_last = ptx::AddToCounter(counter, own) + own == all;
    if (is_last) *counter = 0;
  }
  sync();
  return is_last;
}

}  // namespace tokamak::cuda
