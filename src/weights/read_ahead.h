// Decides which bytes of a file to prefetch from the disk.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace tokamak {

// Thread-safe. A file may be read in several places by turns, each from front to back: experts are
// stored in three tensors, of which loading needs one expert at a time.
class ReadAhead {
 public:
  struct Range {
    uint64_t begin = 0, end = 0;
    bool empty() const { return begin == end; }
  };

  // Returns what to prefetch before a read at `offset`: mostly nothing, and sometimes the next
  // kAhead bytes, so that kAhead to 2 kAhead bytes after each place are prefetched, each of them
  // once.
  Range Next(uint64_t offset) {
    for (std::atomic<uint64_t>& place : asked_) {
      uint64_t asked = place.load(std::memory_order_relaxed);
      if (asked == 0 || offset > asked || offset + 3 * kAhead < asked) continue;
      const uint64_t end = offset + 2 * kAhead;
      // Only one of the threads that get here prefetches.
      if (asked > offset + kAhead ||
          !place.compare_exchange_strong(asked, end, std::memory_order_relaxed)) {
        return {};
      }
      return {asked, end};
    }
    const uint32_t oldest = begun_.fetch_add(1, std::memory_order_relaxed) % kPlaces;
    asked_[oldest].store(offset + 2 * kAhead, std::memory_order_relaxed);
    return {offset, offset + 2 * kAhead};
  }

  static constexpr uint64_t kAhead = uint64_t{32} << 20;
  static constexpr uint32_t kPlaces = 8;

 private:
  // For each place, the end of what is prefetched; 0 before it is used.
  std::array<std::atomic<uint64_t>, kPlaces> asked_ = {};
  std::atomic<uint32_t> begun_ = 0;
};

}  // namespace tokamak
