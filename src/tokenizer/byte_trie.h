// A set of byte strings with ids, walked byte by byte.
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
  static constexpr Node kRoot = -2;

  ByteTrie() { first_.fill(kNone); }
  // Strings must not be empty and are copied. Among equal strings the first wins.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings);

  // The node of a single byte, or kNone.
  Node First(char byte) const { return first_[static_cast<uint8_t>(byte)]; }
  // The child of `node` (which may also be kRoot or kNone) for `byte`, or kNone.
  Node Next(Node node, char byte) const;
  // The id of the string ending at `node`, or -1.
  int32_t Id(Node node) const { return nodes_[node].id; }
  bool empty() const { return nodes_.empty(); }

  struct Match {
    int32_t id = -1;
    size_t size = 0;  // bytes; 0: no match
  };
  // The longest string that is a prefix of `text`, which continues the strings at `from`.
  Match Longest(std::string_view text, Node from = kRoot) const;

 private:
  struct Entry {
    int32_t id = -1;
    int32_t children = 0;  // index of the first one; they are adjacent, by ascending label
    uint16_t count = 0;
    uint8_t label = 0;
  };
  std::array<Node, 256> first_;
  std::vector<Entry> nodes_;
};

}  // namespace tokamak
