// Merging in byte-pair encoding: symbols, ranked pairs, and a word being merged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tokamak {

// The id of a token, or the number of another string that takes part in merges.
using BpeSymbol = int32_t;
inline constexpr BpeSymbol kNoBpeSymbol = -1;

// A word being merged: a linked list of symbols, and a heap of candidate merges.
struct BpeWord {
  struct Node {
    BpeSymbol symbol;
    int32_t previous, next;  // -1: none
    uint32_t begin, size;    // in the word; size 0: merged into the previous node
  };
  struct Candidate {
    uint64_t key;  // rank << 32 | index of the left node: best rank first, then leftmost
    BpeSymbol left, right;
    BpeSymbol result;
    bool operator<(const Candidate& other) const { return key > other.key; }  // for a min-heap
  };
  std::vector<Node> nodes;
  std::vector<Candidate> heap;

  void Clear() { nodes.clear(); }
  void Append(BpeSymbol symbol, size_t begin, size_t size) {
    const auto index = static_cast<int32_t>(nodes.size());
    nodes.push_back(
        {symbol, index - 1, index + 1, static_cast<uint32_t>(begin), static_cast<uint32_t>(size)});
  }
  void Close() {
    if (!nodes.empty()) nodes.back().next = -1;
  }
};

// The merge of two neighbours. Lower ranks merge first.
struct BpeMerge {
  uint32_t rank = 0;
  BpeSymbol result = kNoBpeSymbol;  // kNoBpeSymbol: no merge
};

// Applies the best merge (leftmost first) until none is left. `find(left, right)` returns the
// BpeMerge of two nodes. O(n log n) in the word's length.
template <typename Find>
void ApplyMerges(BpeWord& word, const Find& find) {
  std::vector<BpeWord::Candidate>& heap = word.heap;
  heap.clear();
  const auto propose = [&](int32_t at) {
    const BpeWord::Node& left = word.nodes[at];
    if (left.next < 0) return;
    const BpeWord::Node& right = word.nodes[left.next];
    const BpeMerge merge = find(left, right);
    if (merge.result == kNoBpeSymbol) return;
    heap.push_back({uint64_t{merge.rank} << 32 | static_cast<uint32_t>(at), left.symbol,
                    right.symbol, merge.result});
    std::push_heap(heap.begin(), heap.end());
  };
  const auto count = static_cast<int32_t>(word.nodes.size());
  for (int32_t i = 0; i + 1 < count; ++i) propose(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const BpeWord::Candidate best = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(best.key & 0xFFFFFFFFu);
    BpeWord::Node& left = word.nodes[at];
    // Outdated if either side has since been merged: its symbol differs, or it is gone.
    if (left.size == 0 || left.symbol != best.left || left.next < 0) continue;
    BpeWord::Node& right = word.nodes[left.next];
    if (right.symbol != best.right) continue;
    left.symbol = best.result;
    left.size += right.size;
    left.next = right.next;
    right.size = 0;
    if (left.next >= 0) word.nodes[left.next].previous = at;
    if (left.previous >= 0) propose(left.previous);
    propose(at);
  }
}

// Merges indexed by their two symbols, for vocabularies with a list of merges.
class BpeMerges {
 public:
  explicit BpeMerges(size_t count);

  // The first merge inserted for a pair wins.
  void Insert(BpeSymbol left, BpeSymbol right, uint32_t rank, BpeSymbol result);
  BpeMerge Find(BpeSymbol left, BpeSymbol right) const;
  void Apply(BpeWord& word) const {
    ApplyMerges(word, [this](const BpeWord::Node& left, const BpeWord::Node& right) {
      return Find(left.symbol, right.symbol);
    });
  }

 private:
  // Open addressing, at most half full.
  struct Slot {
    uint64_t pair = kEmpty;  // left << 32 | right
    BpeMerge merge;

    static constexpr uint64_t kEmpty = ~uint64_t{0};
  };
  size_t FindSlot(uint64_t pair) const;

  std::vector<Slot> slots_;
};

}  // namespace tokamak
