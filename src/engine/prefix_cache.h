// PrefixCache: finds blocks that already hold the KV cache of a prompt's beginning.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/block_pool.h"
#include "engine/lru_heap.h"
#include "step/cache_spec.h"
#include "step/step_input.h"

namespace tokamak {

// What stands at a position: a token id, or an id interned from an input that is no token.
using ContentId = int64_t;

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

// The first position that a group must still hold for a query at `position` and all after it.
inline int32_t FirstNeededPosition(const CacheGroup& group, int32_t position) {
  if (group.kind == CacheGroupKind::kFull || position < group.window) return 0;
  return position - group.window + 1;
}

// A radix tree whose edges are whole blocks of content, one tree per root key. A node holds at most
// one block per cache group, on the device or on the host, never both. Owned by the engine thread.
//
// References: the tree holds one to each of its blocks; sequences that read or wrote a block hold
// others. A block that only the tree holds is unreferenced and may be evicted, least recently used
// first, if it is in a window group or (a hole would make what follows worthless) if no child holds
// a block of the same group and tier. Evicting from the device moves the block to the host if that
// has room, by itself or by evicting there; otherwise the block is dropped.
//
// Invariants between calls: in a full group, a node with a block on the device has a parent with
// one on the device, and a node with any has a parent with any. A node without blocks, children
// and cursors does not exist.
class PrefixCache {
 public:
  // The longest valid prefix: `num_blocks` whole blocks down to `node`, then the first
  // `partial_length` positions of the blocks of `partial`, a child of `node`.
  struct Match {
    NodeId node = kNoNode;
    int32_t num_blocks = 0;
    NodeId partial = kNoNode;
    int32_t partial_length = 0;
  };

  // All groups have the same block size. The pools are the block manager's.
  PrefixCache(std::vector<CacheGroup> groups, BlockPool* device, BlockPool* host);

  // The longest prefix of `content`, at most `limit` positions, whose blocks every group still has
  // as far as a continuation reads them.
  Match Find(std::string_view root_key, std::span<const ContentId> content, int32_t limit,
             bool allow_partial) const;

  // Cursors keep a node alive, not its blocks. AddRoot makes the root if it is new.
  NodeId AddRootCursor(std::string_view root_key);
  void AddCursor(NodeId node);
  void DropCursor(NodeId node);

  NodeId parent(NodeId node) const { return nodes_[node].parent; }
  NodeId Ancestor(NodeId node, int32_t depth) const;
  int32_t depth(NodeId node) const { return nodes_[node].depth; }
  BlockId device_block(NodeId node, int32_t group) const { return At(node, group).device; }
  BlockId host_block(NodeId node, int32_t group) const { return At(node, group).host; }

  // For those who watch. The roots of all keys; children in the order of their content.
  template <typename Visit>
  void ForEachRoot(Visit visit) const {
    for (const auto& [key, node] : roots_) visit(node);
  }
  int32_t num_roots() const { return static_cast<int32_t>(roots_.size()); }
  const std::vector<NodeId>& children(NodeId node) const { return nodes_[node].children; }
  // References to the node's device blocks beside the tree's own; of the group that has most.
  int32_t readers(NodeId node) const;
  TimePoint last_used(NodeId node) const { return nodes_[node].last_used; }
  bool holds(BlockId device_block) const { return device_owner_[device_block] >= 0; }
  // What last_used says of what is used from now on.
  void SetTime(TimePoint now) { time_ = now; }

  // References by sequences and steps. All of them must go through here, for the tree must know
  // when a block becomes evictable. `Unref` frees the block when it was the last.
  void Ref(Tier tier, BlockId block);
  void Unref(Tier tier, BlockId block);

  // The host block of (node, group) has been copied to `device`, which the tree now refers to
  // instead. The caller keeps its own references to both.
  void Promote(NodeId node, int32_t group, BlockId device);

  // The child of `parent` for one more block of content, made if it is new, and given `blocks`
  // (one per group, kNoBlock where there is none) where it has none on the device or an
  // unreferenced one.
  NodeId Insert(NodeId parent, std::span<const ContentId> content, std::span<const BlockId> blocks);
  // Gives `node` the device blocks that it has lost in full groups. Returns false if it lacked
  // none.
  bool Refill(NodeId node, std::span<const BlockId> blocks);

  // Makes one device block free. A move to the host is appended to *copies and must take effect
  // before the block is written. Returns false when every block is in use.
  bool EvictOne(std::vector<CopyBlock>* copies);

  // Device blocks that only the tree holds. Not all can be evicted at once: some may have children
  // in use.
  int32_t num_unreferenced() const { return num_unreferenced_; }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size() - free_nodes_.size()); }

  // Forgets everything, without touching the pools.
  void Reset();

 private:
  friend class EngineChecker;  // tests/sim: recounts everything

  struct Node {
    NodeId parent = kNoNode;
    int32_t depth = 0;    // in blocks; 0 is a root
    int32_t cursors = 0;  // sequences that will insert below
    int32_t num_entries = 0;
    bool alive = false;
    TimePoint last_used{};         // when it got a block, or the last reader let one go
    std::vector<NodeId> children;  // in the order of their content
  };
  // One group's block in a node. Its id is node * num_groups + group.
  struct Entry {
    BlockId device = kNoBlock;
    BlockId host = kNoBlock;
    int32_t device_children = 0;  // children with a device block in this group
    int32_t any_children = 0;     // children with a block in this group
    uint64_t last_use = 0;        // when it became unreferenced

    bool empty() const { return device == kNoBlock && host == kNoBlock; }
  };

  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  bool full(int32_t group) const { return groups_[group].kind == CacheGroupKind::kFull; }
  int32_t EntryId(NodeId node, int32_t group) const { return node * num_groups() + group; }
  Entry& At(NodeId node, int32_t group) { return entries_[EntryId(node, group)]; }
  const Entry& At(NodeId node, int32_t group) const { return entries_[EntryId(node, group)]; }
  std::span<const ContentId> Content(NodeId node) const;

  NodeId FindChild(NodeId node, std::span<const ContentId> content) const;
  std::pair<NodeId, int32_t> LongestCommonChild(NodeId node,
                                                std::span<const ContentId> content) const;
  size_t ChildIndex(NodeId node, std::span<const ContentId> content) const;
  // Whether a continuation at `position` finds its window in the last runs_[g] nodes of a path of
  // `num_blocks`.
  bool WindowsValid(int32_t num_blocks, int32_t position) const;
  bool HasAllFullGroups(NodeId node) const;

  NodeId NewNode(NodeId parent);
  void EraseIfUnused(NodeId node);
  void SetDevice(NodeId node, int32_t group, BlockId block);
  void ClearDevice(NodeId node, int32_t group);
  void SetHost(NodeId node, int32_t group, BlockId block);
  void ClearHost(NodeId node, int32_t group);
  void Drop(NodeId node, int32_t group);
  void EvictOneFromHost();
  // Puts the entry into the heap of its tier, or takes it out, as its state demands.
  void Refresh(NodeId node, int32_t group);

  const std::vector<CacheGroup> groups_;
  const int32_t block_size_;
  BlockPool* const device_;
  BlockPool* const host_;

  std::vector<Node> nodes_;
  std::vector<Entry> entries_;      // [nodes, groups]
  std::vector<ContentId> content_;  // [nodes, block_size]
  std::vector<NodeId> free_nodes_;
  std::map<std::string, NodeId, std::less<>> roots_;
  std::vector<int32_t> device_owner_;  // by block: the entry that holds it, or -1
  std::vector<int32_t> host_owner_;
  LruHeap device_lru_;  // entries whose device block can be evicted
  LruHeap host_lru_;
  uint64_t now_ = 0;  // counts uses, orders evictions
  int32_t num_unreferenced_ = 0;
  TimePoint time_{};
  mutable std::vector<int32_t> runs_;  // scratch of Find, by group
};

}  // namespace tokamak
