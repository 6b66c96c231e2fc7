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
  // Above 0: keys of a sequence of more tokens than this are turned by other angles (LongRoPE), all
  // of them. A sequence is of one kind from its admission on; when it outgrows this, it must be
  // admitted anew, and the two kinds share no blocks.
  int32_t switch_length = 0;

  friend bool operator==(const CacheSpec&, const CacheSpec&) = default;
};

// Whether a sequence of so many tokens is of the long kind.
inline bool IsSwitched(int32_t switch_length, int64_t num_tokens) {
  return switch_length > 0 && num_tokens > switch_length;
}
// The angles of position 0: those of the long kind come after those of the short one.
inline int32_t FirstAngle(int32_t switch_length, bool switched) {
  return switched ? switch_length : 0;
}

}  // namespace tokamak
