// A detailed view of a running engine, for monitoring. Holds no text and no token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokamak/engine_stats.h"
#include "tokamak/request.h"

namespace tokamak {

// The state at one moment between two steps. Times are seconds since 1970.
struct EngineSnapshot {
  static constexpr int32_t kMaxSequences = 256;
  static constexpr int32_t kMaxMapBlocks = 16384;
  static constexpr int32_t kMaxTreeNodes = 512;
  static constexpr int32_t kMaxRequests = 64;

  enum class State { kRunning, kWaiting, kPreempted, kPaused };
  struct Sequence {
    std::string request;  // Request::label, or the id
    int32_t choice = 0;
    State state = State::kWaiting;
    int32_t prompt_tokens = 0;
    int32_t computed_tokens = 0;  // positions in the KV cache, cached ones included
    int32_t output_tokens = 0;
    int32_t cached_tokens = 0;  // of computed_tokens, found in the cache at the last admission
    int32_t priority = 0;
    double age_seconds = 0;  // since Submit
    int32_t blocks = 0;      // in its block tables
  };

  // Blocks on the device, shared by all cache groups, and in the host tier.
  struct Blocks {
    int32_t block_tokens = 0;  // positions per block
    int32_t full_groups = 0;   // number of cache groups of each kind
    int32_t window_groups = 0;
    int32_t total = 0;
    int32_t free = 0;
    int32_t referenced = 0;  // by sequences or steps in flight
    int32_t cached = 0;      // held only by the prefix cache
    int32_t host_total = 0;
    int32_t host_used = 0;
    // The first kMaxMapBlocks blocks, one character each: '.' free, 'c' cached, '1' to '9'
    // references besides the prefix cache's (9 means 9 or more).
    std::string map;
  };

  // Part of the prefix tree: a run of blocks without a branch, all with the same readers. The root
  // has id 0, parent -1 and no blocks; the trees of all cache salts are below it. An id lasts as
  // long as the first block of its run.
  struct TreeNode {
    int32_t id = 0;
    int32_t parent = -1;
    int32_t blocks = 0;
    int32_t readers = 0;     // sequences and steps in flight that use all of its blocks
    double age_seconds = 0;  // since its last use; 0 while it has readers
  };

  struct Request {
    std::string id;
    std::optional<FinishReason> end;  // absent: has not ended
    double arrived = 0;
    std::optional<double> admitted;
    std::optional<double> first_token;
    std::optional<double> ended;
    int32_t prompt_tokens = 0;
    int32_t cached_tokens = 0;
    int32_t output_tokens = 0;
    int32_t preemptions = 0;
  };

  double time = 0;
  EngineStats stats;
  // Running sequences first, then waiting ones by rank, then paused ones; at most kMaxSequences.
  std::vector<Sequence> sequences;
  int32_t num_sequences = 0;  // including those left out above
  Blocks blocks;
  std::vector<TreeNode> tree;     // parents first; at most kMaxTreeNodes
  int32_t num_tree_blocks = 0;    // in the whole tree, left-out nodes included
  bool tree_truncated = false;    // some nodes were left out
  std::vector<Request> requests;  // the last kMaxRequests to arrive, oldest first
  // Measured read bandwidth of this machine's memory with all threads. Absent until measured, which
  // happens while the engine idles.
  std::optional<double> read_gb_s;
};

using SnapshotCallback = std::function<void(std::shared_ptr<const EngineSnapshot>)>;

}  // namespace tokamak
