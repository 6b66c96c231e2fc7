// Finds the id of a byte string: an open-addressing table over strings kept elsewhere.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tokamak {

// The strings must outlive the index and stay where they are.
class StringIndex {
 public:
  static constexpr int32_t kMissing = -1;

  // `expected`: how many strings will be inserted; more are taken too.
  explicit StringIndex(size_t expected = 0);
  // Returns false, and changes nothing, if the string is there already.
  bool Insert(std::string_view text, int32_t id);
  int32_t Find(std::string_view text) const;
  // Bytes of the longest string: longer ones need not be looked up.
  size_t longest() const { return longest_; }

 private:
  struct Slot {
    const char* data = nullptr;  // null: free
    uint32_t size = 0;
    uint32_t hash = 0;
    int32_t id = kMissing;
  };
  // The slot that holds `text`, or the free one where it belongs.
  const Slot& Probe(std::string_view text, uint32_t hash) const;
  void Grow();

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t count_ = 0;
  size_t longest_ = 0;
};

}  // namespace tokamak
