// Tensor parallelism (arXiv:1909.08053): which shard of each weight a rank holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "base/ceil_div.h"
#include "ops/collectives.h"

namespace tokamak::nn {

// The query heads of a rank, and the KV heads that they read.
struct HeadShard {
  IndexRange heads;
  IndexRange kv_heads;
};

struct ParallelContext {
  int32_t size = 1;
  int32_t rank = 0;

  // Returns whether each rank gets some of `count` items, which can be cut only after every `unit`.
  bool Divides(int64_t count, int64_t unit = 1) const { return CeilDiv(count, unit) >= size; }
  // This rank's shard of `count` items. The ranks' shards differ by one unit at most, and the first
  // ranks have the larger ones.
  IndexRange Shard(int64_t count, int64_t unit = 1) const {
    const int64_t units = CeilDiv(count, unit);
    const auto begin = [&](int64_t of) {
      return std::min(count, (units / size * of + std::min(of, units % size)) * unit);
    };
    return {begin(rank), begin(rank + 1)};
  }

  // Query heads are cut after every `unit`, and between KV heads if there are enough of these. With
  // fewer KV heads than ranks, neighboring ranks hold the same KV head and share the query heads
  // that read it. None if a rank would get no heads.
  std::optional<HeadShard> ShardHeads(int64_t num_heads, int64_t num_kv_heads,
                                      int64_t unit = 1) const {
    const int64_t group = num_heads / num_kv_heads;
    if (num_kv_heads >= size) {
      const int64_t kv_unit = unit / std::gcd(unit, group);
      if (!Divides(num_kv_heads, kv_unit)) return std::nullopt;
      const IndexRange kv = Shard(num_kv_heads, kv_unit);
      return HeadShard{{kv.begin * group, kv.end * group}, kv};
    }
    if (num_kv_heads > 1 && group % unit != 0) return std::nullopt;
    const int64_t kv_head = rank * num_kv_heads / size;
    const int64_t first = CeilDiv(kv_head * size, num_kv_heads);  // rank with this KV head
    const int64_t last = CeilDiv((kv_head + 1) * size, num_kv_heads);
    const ParallelContext sharing = {static_cast<int32_t>(last - first),
                                     static_cast<int32_t>(rank - first)};
    if (!sharing.Divides(group, unit)) return std::nullopt;
    const IndexRange heads = sharing.Shard(group, unit);
    const int64_t before = kv_head * group;
    return HeadShard{{before + heads.begin, before + heads.end}, {kv_head, kv_head + 1}};
  }
};

}  // namespace tokamak::nn
