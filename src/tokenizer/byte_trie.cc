#include "tokenizer/byte_trie.h"

#include <algorithm>

namespace tokamak {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings) {
  first_.fill(kNone);
  std::stable_sort(strings.begin(), strings.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  strings.erase(std::unique(strings.begin(), strings.end(),
                            [](const auto& a, const auto& b) { return a.first == b.first; }),
                strings.end());
  // Breadth first. The strings of a range share their first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
    Node parent;
  };
  std::vector<Range> queue = {{0, strings.size(), 0, kNone}};
  for (size_t head = 0; head < queue.size(); ++head) {
    const Range range = queue[head];
    const auto first_child = static_cast<Node>(nodes_.size());
    size_t i = range.begin;
    while (i < range.end && strings[i].first.size() == range.depth) ++i;  // ends at the parent
    while (i < range.end) {
      const char byte = strings[i].first[range.depth];
      size_t end = i + 1;
      while (end < range.end && strings[end].first[range.depth] == byte) ++end;
      const auto node = static_cast<Node>(nodes_.size());
      const bool ends_here = strings[i].first.size() == range.depth + 1;
      nodes_.push_back({ends_here ? strings[i].second : -1, 0, 0, static_cast<uint8_t>(byte)});
      if (range.parent == kNone) {
        first_[static_cast<uint8_t>(byte)] = node;
      } else {
        nodes_[range.parent].children = first_child;
        ++nodes_[range.parent].count;
      }
      if (end - i > 1 || !ends_here) queue.push_back({i, end, range.depth + 1, node});
      i = end;
    }
  }
}

ByteTrie::Node ByteTrie::Next(Node node, char byte) const {
  if (node < 0) return node == kRoot ? First(byte) : kNone;
  const Entry& entry = nodes_[node];
  const auto label = static_cast<uint8_t>(byte);
  int32_t low = entry.children;
  int32_t high = low + entry.count;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (nodes_[middle].label < label) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < entry.children + entry.count && nodes_[low].label == label ? low : kNone;
}

ByteTrie::Match ByteTrie::Longest(std::string_view text, Node from) const {
  Match best;
  if (text.empty()) return best;
  Node node = from == kRoot ? First(text[0]) : Next(from, text[0]);
  for (size_t size = 1; node != kNone; ++size) {
    if (const int32_t id = Id(node); id >= 0) best = {id, size};
    if (size == text.size()) break;
    node = Next(node, text[size]);
  }
  return best;
}

}  // namespace tokamak
