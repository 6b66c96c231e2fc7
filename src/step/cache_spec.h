// The KV cache as the engine sees it: a pool of equal blocks and the groups of layers that use
// them. Comes from the model by way of the runner and the executor; holds no pointers.
#pragma once

#include <cstdint>
#include <vector>

namespace tokamak {

// A page of the cache. Device blocks and host blocks are numbered separately, each from 0.
using BlockId = int32_t;

// The positions that a group of layers reads, which decide which blocks a sequence must keep.
enum class CacheGroupKind {
  kFull,    // every position, for as long as the sequence lives
  kWindow,  // the last `window` positions only
};

struct CacheGroup {
  CacheGroupKind kind = CacheGroupKind::kFull;
  int32_t block_size = 0;  // positions per block
  int32_t window = 0;      // kWindow: keys that a query sees, its own included

  friend bool operator==(const CacheGroup&, const CacheGroup&) = default;
};

// An executor's cache. All blocks have the same size in bytes; each can serve any group.
struct CacheSpec {
  std::vector<CacheGroup> groups;  // a sequence has one block table per group
  int64_t block_bytes = 0;         // all layers of a group together
  int32_t num_device_blocks = 0;
  int32_t num_host_blocks = 0;  // the host tier; 0 means that evicted blocks are recomputed
  // If above 0: a sequence of more tokens than this rotates all its keys with LongRoPE's long
  // factors. A sequence keeps the factors with which it was admitted: when it outgrows this length,
  // it must be admitted again. Blocks of the two kinds are never shared.
  int32_t original_context = 0;
  // Besides its blocks a sequence has a state in its slot, that behind its last computed position
  // and no other. So a sequence is admitted with nothing computed, and no row has drafts.
  bool sequence_state = false;

  friend bool operator==(const CacheSpec&, const CacheSpec&) = default;
};

// Whether a sequence of `num_tokens` tokens needs the long RoPE factors.
inline bool UsesLongRope(int32_t original_context, int64_t num_tokens) {
  return original_context > 0 && num_tokens > original_context;
}
// The row of position 0 in the RoPE table, where the long factors' rows follow the short ones'.
inline int32_t LongRopeOffset(int32_t original_context, bool long_rope) {
  return long_rope ? original_context : 0;
}

}  // namespace tokamak
