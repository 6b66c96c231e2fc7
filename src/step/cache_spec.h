// The KV cache as the engine sees it: a pool of equal blocks and the groups of layers that use
// them. Comes up from the model through the runner and the executor; holds no pointers.
#pragma once

#include <cstdint>
#include <vector>

namespace tokamak {

// A page of the cache. Device blocks and host blocks are numbered separately, each from 0.
using BlockId = int32_t;

// How a group of layers uses its blocks, and so which of them a sequence must keep.
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

// What one executor can hold. Every block has the same size in bytes and can serve any group.
struct CacheSpec {
  std::vector<CacheGroup> groups;  // a sequence has one block table per group
  int64_t block_bytes = 0;         // one block, all layers of a group together
  int32_t num_device_blocks = 0;
  int32_t num_host_blocks = 0;  // the host tier; 0 means that evicted blocks are recomputed
  // Above 0: keys of a sequence of more tokens than this are rotated with the long RoPE factors
  // (LongRoPE), all of them. A sequence has one kind of factors from its admission on; when it
  // outgrows this, it must be admitted anew, and the two kinds share no blocks.
  int32_t original_context = 0;

  friend bool operator==(const CacheSpec&, const CacheSpec&) = default;
};

// Whether a sequence of so many tokens needs the long RoPE factors.
inline bool UsesLongRope(int32_t original_context, int64_t num_tokens) {
  return original_context > 0 && num_tokens > original_context;
}
// The row of position 0 in the RoPE table: rows of the long factors follow those of the short ones.
inline int32_t LongRopeOffset(int32_t original_context, bool long_rope) {
  return long_rope ? original_context : 0;
}

}  // namespace tokamak
