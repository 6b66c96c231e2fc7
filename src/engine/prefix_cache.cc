#include "engine/prefix_cache.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/hash.h"

namespace tokamak {
namespace {

int32_t CommonPrefix(std::span<const ContentId> a, std::span<const ContentId> b) {
  const size_t n = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return static_cast<int32_t>(i);
}

}  // namespace

ContentId ImageContent(ImageId image, int32_t row) {
  constexpr ContentId kNegative = std::numeric_limits<ContentId>::min();
  return static_cast<ContentId>(Hash64(&row, sizeof(row), image)) | kNegative;
}

PrefixCache::PrefixCache(std::vector<CacheGroup> groups, BlockPool* device, BlockPool* host)
    : groups_(std::move(groups)),
      block_size_(groups_.front().block_size),
      device_(device),
      host_(host),
      device_owner_(device->size(), -1),
      host_owner_(host->size(), -1),
      runs_(groups_.size()) {}

void PrefixCache::Reset() {
  nodes_.clear();
  entries_.clear();
  content_.clear();
  free_nodes_.clear();
  roots_.clear();
  std::fill(device_owner_.begin(), device_owner_.end(), -1);
  std::fill(host_owner_.begin(), host_owner_.end(), -1);
  device_lru_.Clear();
  host_lru_.Clear();
  num_unreferenced_ = 0;
}

std::span<const ContentId> PrefixCache::Content(NodeId node) const {
  return {content_.data() + static_cast<size_t>(node) * block_size_,
          static_cast<size_t>(block_size_)};
}

int32_t PrefixCache::readers(NodeId node) const {
  int32_t most = 0;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const BlockId block = At(node, g).device;
    if (block != kNoBlock) most = std::max(most, device_->references(block) - 1);
  }
  return most;
}

// Finding.

size_t PrefixCache::ChildIndex(NodeId node, std::span<const ContentId> content) const {
  const std::vector<NodeId>& children = nodes_[node].children;
  const auto less = [this](NodeId child, std::span<const ContentId> value) {
    const std::span<const ContentId> own = Content(child);
    return std::lexicographical_compare(own.begin(), own.end(), value.begin(), value.end());
  };
  return std::lower_bound(children.begin(), children.end(), content, less) - children.begin();
}

NodeId PrefixCache::FindChild(NodeId node, std::span<const ContentId> content) const {
  const std::vector<NodeId>& children = nodes_[node].children;
  const size_t i = ChildIndex(node, content);
  if (i == children.size()) return kNoNode;
  return CommonPrefix(Content(children[i]), content) == block_size_ ? children[i] : kNoNode;
}

std::pair<NodeId, int32_t> PrefixCache::LongestCommonChild(
    NodeId node, std::span<const ContentId> content) const {
  // Children are sorted, so the longest common prefix is next to where `content` would be.
  const std::vector<NodeId>& children = nodes_[node].children;
  const size_t at = ChildIndex(node, content);
  std::pair<NodeId, int32_t> best{kNoNode, 0};
  for (size_t i = at == 0 ? 0 : at - 1; i < children.size() && i <= at; ++i) {
    const int32_t common = CommonPrefix(Content(children[i]), content);
    if (common <= best.second || !HasAllFullGroups(children[i])) continue;
    best = {children[i], common};
  }
  return best;
}

bool PrefixCache::HasAllFullGroups(NodeId node) const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (full(g) && At(node, g).empty()) return false;
  }
  return true;
}

bool PrefixCache::WindowsValid(int32_t num_blocks, int32_t position) const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (full(g)) continue;
    const int32_t first = FirstNeededPosition(groups_[g], position) / block_size_;
    if (runs_[g] < num_blocks - first) return false;
  }
  return true;
}

PrefixCache::Match PrefixCache::Find(std::string_view root_key, std::span<const ContentId> content,
                                     int32_t limit, bool allow_partial) const {
  Match best;
  const auto root = roots_.find(root_key);
  if (root == roots_.end()) return best;
  best.node = root->second;
  std::fill(runs_.begin(), runs_.end(), 0);
  NodeId node = root->second;
  int32_t depth = 0;
  while ((depth + 1) * block_size_ <= limit) {
    const NodeId child = FindChild(node, content.subspan(depth * block_size_, block_size_));
    if (child == kNoNode || !HasAllFullGroups(child)) break;
    for (int32_t g = 0; g < num_groups(); ++g) {
      runs_[g] = At(child, g).empty() ? 0 : runs_[g] + 1;
    }
    node = child;
    ++depth;
    if (WindowsValid(depth, depth * block_size_)) best = {node, depth, kNoNode, 0};
  }
  const int32_t rest = std::min(limit - depth * block_size_, block_size_);
  if (!allow_partial || rest <= 0) return best;
  const auto [child, common] = LongestCommonChild(node, content.subspan(depth * block_size_, rest));
  if (child == kNoNode || !WindowsValid(depth, depth * block_size_ + common)) return best;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (At(child, g).empty()) return best;
  }
  return {node, depth, child, common};
}

// Nodes and cursors.

NodeId PrefixCache::AddRootCursor(std::string_view root_key) {
  auto root = roots_.find(root_key);
  if (root == roots_.end()) root = roots_.emplace(std::string(root_key), NewNode(kNoNode)).first;
  AddCursor(root->second);
  return root->second;
}

void PrefixCache::AddCursor(NodeId node) { ++nodes_[node].cursors; }

void PrefixCache::DropCursor(NodeId node) {
  CHECK(nodes_[node].cursors > 0);
  --nodes_[node].cursors;
  EraseIfUnused(node);
}

NodeId PrefixCache::Ancestor(NodeId node, int32_t depth) const {
  while (nodes_[node].depth > depth) node = nodes_[node].parent;
  return node;
}

NodeId PrefixCache::NewNode(NodeId parent) {
  NodeId node;
  if (!free_nodes_.empty()) {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  } else {
    node = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
    entries_.resize(entries_.size() + num_groups());
    content_.resize(content_.size() + block_size_);
  }
  nodes_[node].parent = parent;
  nodes_[node].depth = parent == kNoNode ? 0 : nodes_[parent].depth + 1;
  nodes_[node].alive = true;
  nodes_[node].last_used = time_;
  return node;
}

void PrefixCache::EraseIfUnused(NodeId node) {
  while (node != kNoNode) {
    Node& n = nodes_[node];
    if (n.cursors > 0 || n.num_entries > 0 || !n.children.empty()) return;
    const NodeId parent = n.parent;
    if (parent == kNoNode) {
      std::erase_if(roots_, [node](const auto& root) { return root.second == node; });
    } else {
      std::vector<NodeId>& siblings = nodes_[parent].children;
      siblings.erase(siblings.begin() + ChildIndex(parent, Content(node)));
    }
    n.alive = false;
    free_nodes_.push_back(node);
    node = parent;
  }
}

// Entries.

void PrefixCache::SetDevice(NodeId node, int32_t group, BlockId block) {
  CHECK(device_owner_[block] == -1);
  Entry& entry = At(node, group);
  const NodeId parent = nodes_[node].parent;
  device_->Ref(block);
  device_owner_[block] = EntryId(node, group);
  if (entry.empty()) ++nodes_[node].num_entries;
  if (parent != kNoNode) {
    if (entry.empty()) ++At(parent, group).any_children;
    ++At(parent, group).device_children;
    Refresh(parent, group);
  }
  entry.device = block;
  Refresh(node, group);
}

void PrefixCache::ClearDevice(NodeId node, int32_t group) {
  Entry& entry = At(node, group);
  const NodeId parent = nodes_[node].parent;
  const BlockId block = entry.device;
  device_owner_[block] = -1;
  if (device_->references(block) == 1) --num_unreferenced_;
  entry.device = kNoBlock;
  Refresh(node, group);
  if (entry.empty()) --nodes_[node].num_entries;
  if (parent != kNoNode) {
    if (entry.empty()) --At(parent, group).any_children;
    --At(parent, group).device_children;
    Refresh(parent, group);
  }
  device_->Unref(block);
}

void PrefixCache::SetHost(NodeId node, int32_t group, BlockId block) {
  Entry& entry = At(node, group);
  const NodeId parent = nodes_[node].parent;
  host_->Ref(block);
  host_owner_[block] = EntryId(node, group);
  if (entry.empty()) ++nodes_[node].num_entries;
  if (parent != kNoNode && entry.empty()) {
    ++At(parent, group).any_children;
    Refresh(parent, group);
  }
  entry.host = block;
  Refresh(node, group);
}

void PrefixCache::ClearHost(NodeId node, int32_t group) {
  Entry& entry = At(node, group);
  const NodeId parent = nodes_[node].parent;
  const BlockId block = entry.host;
  host_owner_[block] = -1;
  entry.host = kNoBlock;
  Refresh(node, group);
  if (entry.empty()) --nodes_[node].num_entries;
  if (parent != kNoNode && entry.empty()) {
    --At(parent, group).any_children;
    Refresh(parent, group);
  }
  host_->Unref(block);
}

void PrefixCache::Refresh(NodeId node, int32_t group) {
  const Entry& entry = At(node, group);
  const int32_t id = EntryId(node, group);
  const bool device = entry.device != kNoBlock && device_->references(entry.device) == 1 &&
                      (!full(group) || entry.device_children == 0);
  const bool host = entry.host != kNoBlock && host_->references(entry.host) == 1 &&
                    (!full(group) || entry.any_children == 0);
  if (device != device_lru_.Contains(id)) {
    device ? device_lru_.Push(id, entry.last_use) : device_lru_.Remove(id);
  }
  if (host != host_lru_.Contains(id)) {
    host ? host_lru_.Push(id, entry.last_use) : host_lru_.Remove(id);
  }
}

void PrefixCache::Ref(Tier tier, BlockId block) {
  BlockPool& pool = tier == Tier::kDevice ? *device_ : *host_;
  pool.Ref(block);
  const int32_t owner = tier == Tier::kDevice ? device_owner_[block] : host_owner_[block];
  if (owner < 0 || pool.references(block) != 2) return;
  if (tier == Tier::kDevice) --num_unreferenced_;
  Refresh(owner / num_groups(), owner % num_groups());
}

void PrefixCache::Unref(Tier tier, BlockId block) {
  BlockPool& pool = tier == Tier::kDevice ? *device_ : *host_;
  const int32_t left = pool.Unref(block);
  const int32_t owner = tier == Tier::kDevice ? device_owner_[block] : host_owner_[block];
  if (owner < 0 || left != 1) return;
  if (tier == Tier::kDevice) {
    ++num_unreferenced_;
    entries_[owner].last_use = ++now_;
  }
  nodes_[owner / num_groups()].last_used = time_;
  Refresh(owner / num_groups(), owner % num_groups());
}

void PrefixCache::Promote(NodeId node, int32_t group, BlockId device) {
  ClearHost(node, group);
  SetDevice(node, group, device);
}

NodeId PrefixCache::Insert(NodeId parent, std::span<const ContentId> content,
                           std::span<const BlockId> blocks) {
  NodeId child = FindChild(parent, content);
  if (child == kNoNode) {
    const size_t index = ChildIndex(parent, content);
    child = NewNode(parent);
    std::copy(content.begin(), content.end(),
              content_.begin() + static_cast<size_t>(child) * block_size_);
    nodes_[parent].children.insert(nodes_[parent].children.begin() + index, child);
  }
  for (int32_t g = 0; g < num_groups(); ++g) {
    const Entry& entry = At(child, g);
    if (blocks[g] == kNoBlock || entry.device == blocks[g]) continue;
    if (entry.device != kNoBlock) {
      // Two sequences computed the same block. Keep the cached one if others reference it.
      if (device_->references(entry.device) > 1) continue;
      ClearDevice(child, g);
    }
    if (entry.host != kNoBlock) ClearHost(child, g);
    SetDevice(child, g, blocks[g]);
  }
  return child;
}

bool PrefixCache::Refill(NodeId node, std::span<const BlockId> blocks) {
  if (nodes_[node].depth == 0) return false;
  bool lacked = false;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (!full(g) || At(node, g).device != kNoBlock) continue;
    lacked = true;
    if (At(node, g).host != kNoBlock) ClearHost(node, g);
    SetDevice(node, g, blocks[g]);
  }
  return lacked;
}

// Eviction.

void PrefixCache::Drop(NodeId node, int32_t group) {
  for (int32_t g = 0; g < num_groups(); ++g) {
    // A node that lacks its block in a full group can never be part of a match again.
    if (g != group && !full(group)) continue;
    if (At(node, g).device != kNoBlock) ClearDevice(node, g);
    if (At(node, g).host != kNoBlock) ClearHost(node, g);
  }
  EraseIfUnused(node);
}

void PrefixCache::EvictOneFromHost() {
  if (host_lru_.empty()) return;
  const int32_t id = host_lru_.Top();
  Drop(id / num_groups(), id % num_groups());
}

bool PrefixCache::EvictOne(std::vector<CopyBlock>* copies) {
  if (device_lru_.empty()) return false;
  const int32_t id = device_lru_.Top();
  const NodeId node = id / num_groups();
  const int32_t group = id % num_groups();
  const BlockId block = At(node, group).device;
  if (host_->num_free() == 0) EvictOneFromHost();
  if (device_owner_[block] != id) return true;  // evicting from the host dropped it too
  const BlockId host = host_->Allocate();
  if (host == kNoBlock) {
    CHECK(!full(group) || At(node, group).any_children == 0);
    Drop(node, group);
    return true;
  }
  copies->push_back({Tier::kDevice, block, Tier::kHost, host});
  SetHost(node, group, host);
  host_->Unref(host);  // the tree's reference remains
  Refresh(node, group);
  ClearDevice(node, group);
  return true;
}

}  // namespace tokamak
