#include "engine/block_manager.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"

namespace tokamak {
namespace {}  // namespace

BlockManager::BlockManager(const CacheSpec& spec, bool prefix_cache)
    : groups_(spec.groups),
      block_size_(groups_.front().block_size),
      use_cache_(prefix_cache),
      device_(spec.num_device_blocks),
      host_(prefix_cache ? spec.num_host_blocks : 0),
      cache_(groups_, &device_, &host_) {}

int32_t BlockManager::BlocksFor(int32_t positions, int32_t step_positions) const {
  int32_t total = 0;
  for (const CacheGroup& group : groups_) {
    int32_t blocks = CeilDiv(positions, block_size_);
    if (group.kind == CacheGroupKind::kWindow) {
      // The positions that must have blocks: the step's, and the window of its first position. At
      // worst the first block holds only one of them.
      const int64_t live = int64_t{group.window} - 1 + step_positions;
      blocks = static_cast<int32_t>(
          std::min<int64_t>(blocks, (live + block_size_ - 2) / block_size_ + 1));
    }
    total += blocks;
  }
  return total;
}

int32_t BlockManager::MissingBlocks(int32_t positions, const SequenceBlocks& blocks) const {
  return num_groups() * std::max(0, CeilDiv(positions, block_size_) - blocks.size());
}

BlockId BlockManager::Allocate() {
  BlockId block = device_.Allocate();
  while (block == kNoBlock && cache_.EvictOne(&work_.copies)) block = device_.Allocate();
  return block;
}

bool BlockManager::AllocateRows(int32_t count, std::vector<BlockId>* rows) {
  rows->clear();
  for (int32_t i = 0; i < count * num_groups(); ++i) {
    const BlockId block = Allocate();
    if (block == kNoBlock) {
      FreeRow(*rows);
      return false;
    }
    rows->push_back(block);
  }
  return true;
}

void BlockManager::FreeRow(std::span<const BlockId> row) {
  for (const BlockId block : row) device_.Unref(block);
}

void BlockManager::InitTables(SequenceBlocks* blocks) const {
  CHECK(blocks->size() == 0);
  blocks->block_tables.resize(groups_.size());
  blocks->num_sent = 0;
  blocks->num_committed = 0;
}

template <typename Visit>
void BlockManager::ForEachMatched(const PrefixCache::Match& match, Visit visit) {
  const int32_t position = Length(match);
  path_.resize(match.num_blocks);
  NodeId node = match.node;
  for (int32_t i = match.num_blocks - 1; i >= 0; --i, node = cache_.parent(node)) path_[i] = node;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const int32_t first = FirstNeededPosition(groups_[g], position) / block_size_;
    for (int32_t i = std::min(first, match.num_blocks); i < match.num_blocks; ++i) {
      visit(path_[i], g, i);
    }
  }
}

bool BlockManager::Affordable(const PrefixCache::Match& match, int32_t demand) {
  // Cached blocks that others use anyway cost nothing.
  if (demand <= num_available()) return true;
  int32_t shared = 0;
  ForEachMatched(match, [&](NodeId node, int32_t g, int32_t) {
    const BlockId block = cache_.device_block(node, g);
    if (block != kNoBlock && device_.references(block) > 1) ++shared;
  });
  return demand - shared <= num_available();
}

std::optional<int32_t> BlockManager::TryAdmit(std::string_view root_key,
                                              std::span<const ContentId> content, int32_t limit,
                                              int32_t demand, RowEnd row_end,
                                              SequenceBlocks* blocks) {
  if (!use_cache_) {
    if (demand > num_available() || !Acquire({}, row_end, blocks)) return std::nullopt;
    return 0;
  }
  for (const bool allow_partial : {true, false}) {
    const PrefixCache::Match match = cache_.Find(root_key, content, limit, allow_partial);
    if (!Affordable(match, demand)) return std::nullopt;
    // Takes the cursor first, so that making room cannot erase the node where the match ends.
    const NodeId cursor = match.node == kNoNode ? cache_.AddRootCursor(root_key) : match.node;
    if (match.node != kNoNode) cache_.AddCursor(cursor);
    if (Acquire(match, row_end, blocks)) {
      blocks->cursor = cursor;
      blocks->num_committed = match.num_blocks;
      return Length(match);
    }
    cache_.DropCursor(cursor);
    // The partial match may hold the very block that is lacking: try again without it.
    if (match.partial == kNoNode) break;
  }
  return std::nullopt;
}

bool BlockManager::Acquire(const PrefixCache::Match& match, RowEnd row_end,
                           SequenceBlocks* blocks) {
  // Hold all matched blocks first, so that making room cannot evict them.
  int32_t num_promoted = 0;
  const auto hold = [&](NodeId node, int32_t g, int32_t) {
    if (cache_.device_block(node, g) != kNoBlock) {
      cache_.Ref(Tier::kDevice, cache_.device_block(node, g));
    } else {
      cache_.Ref(Tier::kHost, cache_.host_block(node, g));
      ++num_promoted;
    }
  };
  const auto release = [&](NodeId node, int32_t g, int32_t) {
    if (cache_.device_block(node, g) != kNoBlock) {
      cache_.Unref(Tier::kDevice, cache_.device_block(node, g));
    } else {
      cache_.Unref(Tier::kHost, cache_.host_block(node, g));
    }
  };
  ForEachMatched(match, hold);
  const int32_t num_to_promote = num_promoted;
  for (int32_t g = 0; match.partial != kNoNode && g < num_groups(); ++g) {
    hold(match.partial, g, 0);
  }
  promoted_.clear();
  while (static_cast<int32_t>(promoted_.size()) < num_to_promote) {
    const BlockId block = Allocate();
    if (block == kNoBlock) break;
    promoted_.push_back(block);
  }
  const int32_t num_rows = CeilDiv(row_end(Length(match)), block_size_) - match.num_blocks;
  if (static_cast<int32_t>(promoted_.size()) < num_to_promote || !AllocateRows(num_rows, &row_)) {
    FreeRow(promoted_);
    for (int32_t g = 0; match.partial != kNoNode && g < num_groups(); ++g) {
      release(match.partial, g, 0);
    }
    ForEachMatched(match, release);
    return false;
  }
  InitTables(blocks);
  for (auto& table : blocks->block_tables) table.assign(match.num_blocks, kNoBlock);
  size_t next_promoted = 0;
  ForEachMatched(match, [&](NodeId node, int32_t g, int32_t index) {
    BlockId& block = blocks->block_tables[g][index];
    block = cache_.device_block(node, g);
    if (block != kNoBlock) return;
    const BlockId host = cache_.host_block(node, g);
    block = promoted_[next_promoted++];
    work_.copies.push_back({Tier::kHost, host, Tier::kDevice, block});
    work_.pins.push_back({Tier::kHost, host});
    cache_.Promote(node, g, block);
  });
  for (size_t i = 0; i < row_.size(); ++i) {
    blocks->block_tables[i % blocks->block_tables.size()].push_back(row_[i]);
  }
  for (int32_t g = 0; match.partial != kNoNode && g < num_groups(); ++g) {
    const BlockId device = cache_.device_block(match.partial, g);
    const Pin source = device != kNoBlock ? Pin{Tier::kDevice, device}
                                          : Pin{Tier::kHost, cache_.host_block(match.partial, g)};
    work_.copies.push_back({source.tier, source.block, Tier::kDevice, row_[g]});
    work_.pins.push_back(source);
  }
  return true;
}

std::optional<int32_t> BlockManager::TryFork(const SequenceBlocks& parent, int32_t num_computed,
                                             int32_t demand, SequenceBlocks* blocks) {
  const int32_t whole = num_computed / block_size_;
  const bool partial = num_computed % block_size_ != 0;
  if (parent.size() < whole + (partial ? 1 : 0)) return std::nullopt;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const int32_t first = FirstNeededPosition(groups_[g], num_computed) / block_size_;
    for (int32_t i = first; i < whole + (partial ? 1 : 0); ++i) {
      if (parent.block_tables[g][i] == kNoBlock) return std::nullopt;
    }
  }
  if (demand - num_groups() * whole > num_available()) return std::nullopt;
  if (!AllocateRows(1, &row_)) return std::nullopt;
  InitTables(blocks);
  for (int32_t g = 0; g < num_groups(); ++g) {
    const int32_t first = FirstNeededPosition(groups_[g], num_computed) / block_size_;
    std::vector<BlockId>& table = blocks->block_tables[g];
    table.assign(whole, kNoBlock);
    for (int32_t i = first; i < whole; ++i) {
      table[i] = parent.block_tables[g][i];
      cache_.Ref(Tier::kDevice, table[i]);
    }
    table.push_back(row_[g]);
    if (!partial) continue;
    const BlockId source = parent.block_tables[g][whole];
    cache_.Ref(Tier::kDevice, source);
    work_.copies.push_back({Tier::kDevice, source, Tier::kDevice, row_[g]});
    work_.pins.push_back({Tier::kDevice, source});
  }
  if (use_cache_) {
    blocks->num_committed = std::min(whole, parent.num_committed);
    blocks->cursor = cache_.Ancestor(parent.cursor, blocks->num_committed);
    cache_.AddCursor(blocks->cursor);
  }
  return num_computed;
}

int32_t BlockManager::Grow(int32_t positions, bool may_allocate, SequenceBlocks* blocks) {
  const int32_t wanted = CeilDiv(positions, block_size_);
  while (blocks->size() < wanted && may_allocate && AllocateRows(1, &row_)) {
    for (int32_t g = 0; g < num_groups(); ++g) blocks->block_tables[g].push_back(row_[g]);
  }
  return std::min(positions, blocks->size() * block_size_);
}

void BlockManager::Commit(std::span<const ContentId> content, int32_t num_computed,
                          SequenceBlocks* blocks) {
  if (!use_cache_) return;
  CHECK(static_cast<size_t>(num_computed) <= content.size());
  const auto row = [&](int32_t index) -> std::span<const BlockId> {
    row_.clear();
    for (const auto& table : blocks->block_tables) row_.push_back(table[index]);
    return row_;
  };
  while ((blocks->num_committed + 1) * block_size_ <= num_computed) {
    const int32_t index = blocks->num_committed;
    // Nodes on our path may have held another sequence's equal blocks and lost them by eviction.
    // Gives them ours.
    NodeId node = blocks->cursor;
    for (int32_t i = index - 1; i >= 0 && cache_.Refill(node, row(i)); --i) {
      node = cache_.parent(node);
    }
    const NodeId child = cache_.Insert(
        blocks->cursor, content.subspan(index * block_size_, block_size_), row(index));
    cache_.AddCursor(child);
    cache_.DropCursor(blocks->cursor);
    blocks->cursor = child;
    ++blocks->num_committed;
  }
}

void BlockManager::DropOutOfWindow(int32_t num_computed, SequenceBlocks* blocks) {
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (groups_[g].kind != CacheGroupKind::kWindow) continue;
    const int32_t first = FirstNeededPosition(groups_[g], num_computed) / block_size_;
    // Windows differ between groups; kNoBlock marks an entry that was dropped before.
    for (int32_t i = std::min(first, blocks->size()) - 1; i >= 0; --i) {
      BlockId& block = blocks->block_tables[g][i];
      if (block == kNoBlock) break;
      cache_.Unref(Tier::kDevice, block);
      block = kNoBlock;
    }
  }
}

void BlockManager::Release(SequenceBlocks* blocks) {
  // Deepest first, so that eviction takes a sequence's later blocks first.
  for (int32_t i = blocks->size() - 1; i >= 0; --i) {
    for (auto& table : blocks->block_tables) {
      if (table[i] != kNoBlock) cache_.Unref(Tier::kDevice, table[i]);
    }
  }
  if (blocks->cursor != kNoNode) cache_.DropCursor(blocks->cursor);
  *blocks = SequenceBlocks{};
}

BlockManager::StepWork BlockManager::TakeStepWork() { return std::exchange(work_, StepWork{}); }

void BlockManager::Unpin(std::span<const Pin> pins) {
  for (const Pin& pin : pins) cache_.Unref(pin.tier, pin.block);
}

void BlockManager::Reset() {
  cache_.Reset();
  device_.Reset();
  host_.Reset();
  work_ = StepWork{};
}

}  // namespace tokamak
