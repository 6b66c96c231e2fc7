// A set of byte strings with ids, walked one byte at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tokamak {

class ByteTrie {
 public:
  using Node = int32_t;
  static constexpr Node kNone = -1;

  ByteTrie() { first_.fill(kNone); }
  // Strings must not be empty; of equal ones the first counts. They are not kept.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings);

  // The node for a single byte, or kNone.
  Node First(char byte) const { return first_[static_cast<uint8_t>(byte)]; }
  // The child of `node` under `byte`, or kNone.
  Node Next(Node node, char byte) const;
  // The id of the string that ends at `node`, or -1.
  int32_t Id(Node node) const { return nodes_[node].id; }
  bool empty() const { return nodes_.empty(); }

  struct Match {
    int32_t id = -1;
    size_t size = 0;  // bytes; 0: no match
  };
  // The longest string that `text` starts with.
  Match Longest(std::string_view text) const;

 private:
  struct Entry {
    int32_t id = -1;
    int32_t children = 0;  // index of the first child: children are adjacent, labels ascending
    uint16_t count = 0;
    uint8_t label = 0;
  };
  std::array<Node, 256> first_;
  std::vector<Entry> nodes_;
};

}  // namespace tokamak
