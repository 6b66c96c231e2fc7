// Finds ids of byte strings: an open-addressing table of strings stored elsewhere.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tokamak {

// The strings must outlive the index and not move.
class StringIndex {
 public:
  static constexpr int32_t kMissing = -1;

  // `expected` is the number of strings; more may be inserted.
  explicit StringIndex(size_t expected = 0);
  // Returns false and changes nothing if the string exists.
  bool Insert(std::string_view text, int32_t id);
  int32_t Find(std::string_view text) const;
  // Size of the longest string; longer ones need no lookup.
  size_t longest() const { return longest_; }

 private:
  struct Slot {
    const char* data = nullptr;  // null: free
    uint32_t size = 0;
    uint32_t hash = 0;
    int32_t id = kMissing;
  };
  // The slot of `text`, or the free one where it belongs.
  const Slot& Probe(std::string_view text, uint32_t hash) const;
  void Grow();

  std::vector<Slot> slots_;  // size: a power of two; at most half full
  size_t count_ = 0;
  size_t longest_ = 0;
};

}  // namespace tokamak
