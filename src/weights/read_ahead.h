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
  // kAhead bytes, so that kAhead to 2 kAhead bytes after each place are prefetched, nearly
  // always once.
  Range Next(uint64_t offset) {
    const uint64_t end = offset + 2 * kAhead;
    while (true) {
      uint32_t begun = begun_.load(std::memory_order_acquire);
      for (std::atomic<uint64_t>& place : asked_) {
        uint64_t asked = place.load(std::memory_order_relaxed);
        if (asked == 0 || offset > asked || offset + 3 * kAhead < asked) continue;
        // Only one of the threads that get here prefetches.
        if (asked > offset + kAhead ||
            !place.compare_exchange_strong(asked, end, std::memory_order_relaxed)) {
          return {};
        }
        return {asked, end};
      }
      // Threads often jump to a new place together. Only one begins it; the others search again.
      if (!begun_.compare_exchange_weak(begun, begun + 1, std::memory_order_acq_rel)) continue;
      asked_[begun % kPlaces].store(end, std::memory_order_relaxed);
      return {offset, end};
    }
  }

  static constexpr uint64_t kAhead = uint64_t{32} << 20;
  static constexpr uint32_t kPlaces = 8;

 private:
  // For each place, the end of what is prefetched; 0 before it is used.
  std::array<std::atomic<uint64_t>, kPlaces> asked_ = {};
  std::atomic<uint32_t> begun_ = 0;
};

}  // namespace tokamak
