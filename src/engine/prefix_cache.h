// PrefixCache: finds blocks that already hold the KV cache of the start of a prompt.
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

// The content of a position: a token id, or a negative number for a row of an image.
using ContentId = int64_t;

inline bool ShowsImage(ContentId content) { return content < 0; }
ContentId ImageContent(ImageId image, int32_t row);

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

// The first position that a group must hold for queries at `position` and later.
inline int32_t FirstNeededPosition(const CacheGroup& group, int32_t position) {
  if (group.kind == CacheGroupKind::kFull || position < group.window) return 0;
  return position - group.window + 1;
}

// A radix tree whose edges are whole blocks of content, one tree per root key. A node holds at most
// one block per cache group, on the device or on the host, never both. Owned by the engine thread.
//
// The tree holds a reference to each of its blocks, and so do sequences that read or wrote it. A
// block that only the tree references may be evicted, least recently used first. In a full group
// this also requires that no child holds a block of the same group and tier, because a hole would
// make the rest worthless. Eviction moves a device block to the host if the host has room or can
// make some by evicting; otherwise it drops the block.
//
// Invariants between calls, for full groups: the parent of a node with a device block has a device
// block, and the parent of a node with any block has a block. A node without blocks, children and
// cursors does not exist.
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

  // All groups must have the same block size. The block manager owns the pools.
  PrefixCache(std::vector<CacheGroup> groups, BlockPool* device, BlockPool* host);

  // Finds the longest prefix of `content`, at most `limit` positions, for which every group still
  // has the blocks that a continuation reads.
  Match Find(std::string_view root_key, std::span<const ContentId> content, int32_t limit,
             bool allow_partial) const;

  // A cursor keeps a node alive, but not its blocks. AddRootCursor creates the root if it is new.
  NodeId AddRootCursor(std::string_view root_key);
  void AddCursor(NodeId node);
  void DropCursor(NodeId node);

  NodeId parent(NodeId node) const { return nodes_[node].parent; }
  NodeId Ancestor(NodeId node, int32_t depth) const;
  int32_t depth(NodeId node) const { return nodes_[node].depth; }
  BlockId device_block(NodeId node, int32_t group) const { return At(node, group).device; }
  BlockId host_block(NodeId node, int32_t group) const { return At(node, group).host; }

  // For snapshots: the roots of all keys. Children are in the order of their content.
  template <typename Visit>
  void ForEachRoot(Visit visit) const {
    for (const auto& [key, node] : roots_) visit(node);
  }
  int32_t num_roots() const { return static_cast<int32_t>(roots_.size()); }
  const std::vector<NodeId>& children(NodeId node) const { return nodes_[node].children; }
  // References to the node's device blocks besides the tree's own, in the group with most of them.
  int32_t readers(NodeId node) const;
  TimePoint last_used(NodeId node) const { return nodes_[node].last_used; }
  bool holds(BlockId device_block) const { return device_owner_[device_block] >= 0; }
  // The time that last_used reports for blocks used from now on.
  void SetTime(TimePoint now) { time_ = now; }

  // References held by sequences and steps. All must go through here, because the tree must know
  // when a block becomes evictable. Unref frees the block if it was the last reference.
  void Ref(Tier tier, BlockId block);
  void Unref(Tier tier, BlockId block);

  // Call after copying the host block of (node, group) to `device`: the tree then refers to that
  // instead. The caller keeps its own references to both.
  void Promote(NodeId node, int32_t group, BlockId device);

  // Returns the child of `parent` for one more block of content, created if it is new. Gives it
  // each of `blocks` (one per group; kNoBlock for none) unless the child has a device block there
  // that others reference.
  NodeId Insert(NodeId parent, std::span<const ContentId> content, std::span<const BlockId> blocks);
  // Gives `node` the device blocks that it lost in full groups. Returns false if it lacked none.
  bool Refill(NodeId node, std::span<const BlockId> blocks);

  // Frees one device block. A move to the host is appended to *copies and must take effect before
  // the block is written. Returns false if every block is in use.
  bool EvictOne(std::vector<CopyBlock>* copies);

  // Device blocks that only the tree references. Not all can be evicted at once: some may have
  // children in use.
  int32_t num_unreferenced() const { return num_unreferenced_; }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size() - free_nodes_.size()); }

  // Forgets everything, without touching the pools.
  void Reset();

 private:
  friend class EngineChecker;  // tests/sim: recounts everything

  struct Node {
    NodeId parent = kNoNode;
    int32_t depth = 0;    // in blocks; 0 is a root
    int32_t cursors = 0;  // sequences that will insert below this node
    int32_t num_entries = 0;
    bool alive = false;
    TimePoint last_used{};         // when it got a block or a reader last released one
    std::vector<NodeId> children;  // in the order of their content
  };
  // One group's block in a node. An entry's id is node * num_groups + group.
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
  // Whether every window group has the blocks that a continuation at `position` reads, after a path
  // of `num_blocks` nodes. Requires in runs_[g] how many of the last nodes have a block of group g.
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
  // Adds the entry to the heap of its tier or removes it, according to its state.
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
  uint64_t now_ = 0;  // counts uses; orders evictions
  int32_t num_unreferenced_ = 0;
  TimePoint time_{};
  mutable std::vector<int32_t> runs_;  // scratch of Find, by group
};

}  // namespace tokamak
