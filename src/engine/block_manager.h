// BlockManager: the block tables of all sequences, and the copies that a step needs for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/block_pool.h"
#include "engine/prefix_cache.h"
#include "step/cache_spec.h"
#include "step/step_input.h"

namespace tokamak {

// One sequence's blocks. Changed by BlockManager alone.
struct SequenceBlocks {
  // [group][index]: the block of positions [index * block_size, (index + 1) * block_size), or
  // kNoBlock where a window group needs none. All groups have equally many entries.
  std::vector<std::vector<BlockId>> tables;
  int32_t num_sent = 0;       // entries that the runner knows
  NodeId cursor = kNoNode;    // where in the prefix cache this sequence stands
  int32_t num_committed = 0;  // whole blocks that it has there: the cursor's depth

  int32_t size() const { return tables.empty() ? 0 : static_cast<int32_t>(tables[0].size()); }
};

// Owns both tiers of blocks and the prefix cache; the scheduler and the engine core call it on the
// engine thread. Every block is free, referenced by sequences or by steps in flight, held by the
// prefix cache, or several of the last three.
//
// Preemption, swapping and sharing are one mechanism: whole computed blocks go into the prefix
// cache as soon as the step that fills them has retired (Commit), a preempted or ended sequence
// merely drops its references (Release), eviction moves what nobody uses to the host or frees it,
// and resuming is an admission like any other (TryAdmit). Without the prefix cache nothing is
// committed, so preempted sequences are recomputed and the host tier is not used.
//
// Copies are collected for the next step, in the order they must take effect. A block freed by an
// eviction may be written by the same step, because its copy to the host comes first. What a copy
// reads stays referenced until that step has retired (`pins`), evicted blocks excepted.
class BlockManager {
 public:
  struct Pin {
    Tier tier;
    BlockId block;
  };
  // What the step under construction needs.
  struct StepWork {
    std::vector<CopyBlock> copies;
    std::vector<Pin> pins;  // to be given to Unpin when the step has retired
  };

  BlockManager(const CacheSpec& spec, bool prefix_cache);

  // Gives a sequence that has no blocks those that are cached of its `content`, at most `limit`
  // positions, and blocks for one position more at least. Returns the number of positions that need
  // not be computed. nullopt, and no sequence changed, if there are too few blocks, or if fewer
  // than `demand` are available or cached for it and in use by others.
  std::optional<int32_t> TryAdmit(std::string_view root_key, std::span<const ContentId> content,
                                  int32_t limit, int32_t demand, SequenceBlocks* blocks);

  // As TryAdmit, from the blocks of a sequence that has computed the first `num_computed`
  // positions: whole blocks are shared, the last one is copied. nullopt also when the parent no
  // longer has what a window group needs.
  std::optional<int32_t> TryFork(const SequenceBlocks& parent, int32_t num_computed, int32_t demand,
                                 SequenceBlocks* blocks);

  // Extends the tables towards `positions` positions, as far as blocks can be had (not at all
  // without `may_allocate`). Returns how many positions have blocks, at most `positions`.
  int32_t Grow(int32_t positions, bool may_allocate, SequenceBlocks* blocks);

  // The steps that computed the first `num_computed` positions have retired: their whole blocks can
  // be shared from now on.
  void Commit(std::span<const ContentId> content, int32_t num_computed, SequenceBlocks* blocks);
  // Drops blocks that no row starting at `num_computed` or later reads.
  void DropOutOfWindow(int32_t num_computed, SequenceBlocks* blocks);
  // Drops all of a sequence's references. No step in flight may name its blocks.
  void Release(SequenceBlocks* blocks);

  // The copies since the last call.
  StepWork TakeStepWork();
  void Unpin(std::span<const Pin> pins);

  // Forgets all blocks after an executor's reset: their contents are lost.
  void Reset();

  int32_t num_blocks() const { return device_.size(); }
  // An upper bound for what Grow could allocate at once.
  int32_t num_available() const { return device_.num_free() + cache_.num_unreferenced(); }
  int32_t num_cached() const { return cache_.num_unreferenced(); }
  int32_t num_used() const { return num_blocks() - num_available(); }

  // For those who watch.
  const std::vector<CacheGroup>& groups() const { return groups_; }
  const BlockPool& device() const { return device_; }
  const BlockPool& host() const { return host_; }
  const PrefixCache& cache() const { return cache_; }
  // The time for PrefixCache::last_used.
  void SetTime(TimePoint now) { cache_.SetTime(now); }

  // Blocks, in all groups, for a sequence of `positions` positions of which the last
  // `step_positions` are computed in one step.
  int32_t BlocksFor(int32_t positions, int32_t step_positions) const;
  // Blocks that tables must still grow by to hold `positions` positions.
  int32_t MissingBlocks(int32_t positions, const SequenceBlocks& blocks) const;

 private:
  friend class EngineChecker;  // tests/sim: recounts everything

  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  BlockId Allocate();
  bool AllocateRow(std::vector<BlockId>* row);
  void FreeRow(std::span<const BlockId> row);
  bool Affordable(const PrefixCache::Match& match, int32_t demand);
  bool Acquire(const PrefixCache::Match& match, SequenceBlocks* blocks);
  // Visits (node, group, index) of all blocks that a match takes whole.
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
