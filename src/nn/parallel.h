// Tensor parallelism (arXiv:1909.08053): which shard of each weight a rank holds.
#pragma once

#include <cstdint>

namespace tokamak::nn {

// Half-open.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

struct ParallelContext {
  int32_t size = 1;
  int32_t rank = 0;

  // Returns whether `count` items can be divided equally among the ranks.
  bool Divides(int64_t count) const { return count % size == 0; }
  // This rank's shard of `count` items. Requires Divides(count).
  IndexRange Shard(int64_t count) const {
    const int64_t each = count / size;
    return {rank * each, (rank + 1) * each};
  }

  // KV heads are sharded like query heads. If there are fewer than ranks, size / num_kv_heads
  // neighboring ranks hold the same KV head, with the query heads that read it.
  bool DividesKvHeads(int64_t num_kv_heads) const {
    return num_kv_heads >= size ? num_kv_heads % size == 0 : size % num_kv_heads == 0;
  }
  IndexRange KvHeads(int64_t num_kv_heads) const {
    if (num_kv_heads >= size) return Shard(num_kv_heads);
    const int64_t head = rank / (size / num_kv_heads);
    return {head, head + 1};
  }
};

}  // namespace tokamak::nn
