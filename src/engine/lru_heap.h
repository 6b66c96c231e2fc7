// LruHeap: an indexed binary heap that finds the least recently used item.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tokamak {

// Items are small non-negative integers, ordered by stamp, smallest on top. Push and Remove take
// O(log n), Top and Contains O(1).
class LruHeap {
 public:
  bool empty() const { return heap_.empty(); }
  int32_t size() const { return static_cast<int32_t>(heap_.size()); }
  int32_t Top() const { return heap_.front().item; }

  bool Contains(int32_t item) const {
    return item < static_cast<int32_t>(index_.size()) && index_[item] >= 0;
  }

  void Push(int32_t item, uint64_t stamp) {
    if (item >= static_cast<int32_t>(index_.size())) index_.resize(item + 1, -1);
    heap_.push_back({stamp, item});
    Up(heap_.size() - 1);
  }

  void Remove(int32_t item) {
    const size_t hole = index_[item];
    index_[item] = -1;
    const Slot last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    heap_[hole] = last;
    index_[last.item] = static_cast<int32_t>(hole);
    Down(hole);
    Up(index_[last.item]);
  }

  void Clear() {
    heap_.clear();
    index_.clear();
  }

 private:
  struct Slot {
    uint64_t stamp;
    int32_t item;
  };

  void Up(size_t at) {
    const Slot slot = heap_[at];
    while (at > 0 && slot.stamp < heap_[(at - 1) / 2].stamp) {
      Put(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    Put(at, slot);
  }

  void Down(size_t at) {
    const Slot slot = heap_[at];
    for (;;) {
      size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1].stamp < heap_[child].stamp) ++child;
      if (slot.stamp <= heap_[child].stamp) break;
      Put(at, heap_[child]);
      at = child;
    }
    Put(at, slot);
  }

  void Put(size_t at, Slot slot) {
    heap_[at] = slot;
    index_[slot.item] = static_cast<int32_t>(at);
  }

  std::vector<Slot> heap_;
  std::vector<int32_t> index_;  // by item: its index in heap_, or -1
};

}  // namespace tokamak
