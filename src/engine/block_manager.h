// BlockManager: the block tables of all sequences, and the copies that steps need for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "engine/block_pool.h"
#include "engine/prefix_cache.h"
#include "step/cache_spec.h"
#include "step/step_input.h"

namespace tokamak {

// One sequence's blocks. Only BlockManager changes them.
struct SequenceBlocks {
  // [group][index]: the block of positions [index * block_size, (index + 1) * block_size), or
  // kNoBlock where a window group needs none. All groups have the same number of entries.
  std::vector<std::vector<BlockId>> block_tables;
  int32_t num_sent = 0;       // entries sent to the runner
  NodeId cursor = kNoNode;    // this sequence's node in the prefix cache
  int32_t num_committed = 0;  // whole blocks in the prefix cache: the cursor's depth

  int32_t size() const {
    return block_tables.empty() ? 0 : static_cast<int32_t>(block_tables[0].size());
  }
};

// Owns both tiers of blocks and the prefix cache. The scheduler and the engine core call it on the
// engine thread. A block is free, or at least one of: referenced by sequences, referenced by steps
// in flight, held by the prefix cache.
//
// Preemption, swapping and sharing are one mechanism. Commit puts whole blocks into the prefix
// cache once the step that fills them has retired. Release, for preempted and ended sequences, only
// drops references. Eviction moves unused blocks to the host or frees them. A resumed sequence goes
// through TryAdmit like any other. Without the prefix cache nothing is committed, so preempted
// sequences are recomputed and the host tier is not used.
//
// Copies are collected for the next step, in the order in which they must take effect. The same
// step may write to an evicted block, because its copy to the host comes first. Other blocks that a
// copy reads stay referenced until the step has retired (`pins`).
class BlockManager {
 public:
  struct Pin {
    Tier tier;
    BlockId block;
  };
  // The copies of the step under construction.
  struct StepWork {
    std::vector<CopyBlock> copies;
    std::vector<Pin> pins;  // give these to Unpin when the step has retired
  };

  BlockManager(const CacheSpec& spec, bool prefix_cache);

  // Returns the position before which the first row of a sequence may not end, if num_computed
  // positions need no computing.
  using RowEnd = FunctionRef<int32_t(int32_t num_computed)>;
  // Admits a sequence that has no blocks: gives it the cached blocks of its `content`, at most
  // `limit` positions, and blocks for all positions before `row_end`. Returns how many positions
  // need no computing. Returns nullopt, and changes no sequence, if there are too few blocks for
  // this, or if fewer than `demand` are available. Matched blocks that others use count as
  // available.
  std::optional<int32_t> TryAdmit(std::string_view root_key, std::span<const ContentId> content,
                                  int32_t limit, int32_t demand, RowEnd row_end,
                                  SequenceBlocks* blocks);
  // The same for a first row of one position.
  std::optional<int32_t> TryAdmit(std::string_view root_key, std::span<const ContentId> content,
                                  int32_t limit, int32_t demand, SequenceBlocks* blocks) {
    return TryAdmit(
        root_key, content, limit, demand, [](int32_t num_computed) { return num_computed + 1; },
        blocks);
  }

  // Like TryAdmit, but takes the blocks of a sequence that has computed the first `num_computed`
  // positions: shares whole blocks and copies the last one. Also nullopt if the parent has dropped
  // blocks that a window group needs.
  std::optional<int32_t> TryFork(const SequenceBlocks& parent, int32_t num_computed, int32_t demand,
                                 SequenceBlocks* blocks);

  // Extends the tables towards `positions` positions, as far as blocks can be allocated (not at all
  // without `may_allocate`). Returns how many positions have blocks, at most `positions`.
  int32_t Grow(int32_t positions, bool may_allocate, SequenceBlocks* blocks);

  // Shares the whole blocks among the first `num_computed` positions from now on. Requires that the
  // steps that computed them have retired.
  void Commit(std::span<const ContentId> content, int32_t num_computed, SequenceBlocks* blocks);
  // Drops blocks that no row starting at `num_computed` or later reads.
  void DropOutOfWindow(int32_t num_computed, SequenceBlocks* blocks);
  // Drops all of a sequence's references. Requires that no step in flight names its blocks.
  void Release(SequenceBlocks* blocks);

  // The copies since the last call.
  StepWork TakeStepWork();
  void Unpin(std::span<const Pin> pins);

  // Forgets all blocks; their contents are lost when an executor is reset.
  void Reset();

  int32_t num_blocks() const { return device_.size(); }
  // An upper bound on what Grow could allocate at once.
  int32_t num_available() const { return device_.num_free() + cache_.num_unreferenced(); }
  int32_t num_cached() const { return cache_.num_unreferenced(); }
  int32_t num_used() const { return num_blocks() - num_available(); }

  // For snapshots and statistics.
  const std::vector<CacheGroup>& groups() const { return groups_; }
  const BlockPool& device() const { return device_; }
  const BlockPool& host() const { return host_; }
  const PrefixCache& cache() const { return cache_; }
  void SetTime(TimePoint now) { cache_.SetTime(now); }

  // Blocks, in all groups, that a sequence of `positions` positions needs if one step computes the
  // last `step_positions` of them.
  int32_t BlocksFor(int32_t positions, int32_t step_positions) const;
  int32_t MissingBlocks(int32_t positions, const SequenceBlocks& blocks) const;

 private:
  friend class EngineChecker;  // tests/sim: recounts everything

  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  BlockId Allocate();
  // Allocates blocks for `count` more entries of all groups' tables, entry by entry, or none.
  bool AllocateRows(int32_t count, std::vector<BlockId>* rows);
  void FreeRow(std::span<const BlockId> row);
  bool Affordable(const PrefixCache::Match& match, int32_t demand);
  // Returns how many positions a match covers.
  int32_t Length(const PrefixCache::Match& match) const {
    return match.num_blocks * block_size_ + match.partial_length;
  }
  bool Acquire(const PrefixCache::Match& match, RowEnd row_end, SequenceBlocks* blocks);
  // Visits (node, group, index) of each block that a match takes whole.
  template <typename Visit>
  void ForEachMatched(const PrefixCache::Match& match, Visit visit);
  void InitTables(SequenceBlocks* blocks) const;

  const std::vector<CacheGroup> groups_;
  const int32_t block_size_;
  const bool use_cache_;
  BlockPool device_;
  BlockPool host_;
  PrefixCache cache_;
  StepWork work_;
  // Scratch.
  std::vector<NodeId> path_;
  std::vector<BlockId> row_;
  std::vector<BlockId> promoted_;
};

}  // namespace tokamak
