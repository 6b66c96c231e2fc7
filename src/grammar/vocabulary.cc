#include "grammar/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace tokamak {

namespace {

// Longer tokens are never allowed. No tokenizer has them.
constexpr size_t kMaxTokenBytes = 4096;

PlainText Classify(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '"' || c == '\\' || static_cast<uint8_t>(c) < 0x20) return PlainText::kNone;
  }
  if (!IsValidUtf8(bytes)) return PlainText::kNone;
  return CountCodePoints(bytes) <= kShortCharacters ? PlainText::kShort : PlainText::kAll;
}

using Node = Vocabulary::Impl::Node;

// A token in the order of bytes, most of which the first eight decide.
struct Token {
  Token(std::string_view bytes, int32_t id) : bytes(bytes), id(id) {
    for (size_t i = 0; i < sizeof(first); ++i) {
      first = first << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0);
    }
  }
  friend bool operator<(const Token& a, const Token& b) {
    if (a.first != b.first) return a.first < b.first;
    const int order = a.bytes.compare(b.bytes);
    return order != 0 ? order < 0 : a.id < b.id;
  }

  uint64_t first = 0;
  std::string_view bytes;
  int32_t id;
};

// The trie of those in `tokens`, which are sorted by bytes, that `has` accepts.
template <typename Has>
std::vector<Node> MakeTrie(const std::vector<Token>& tokens, const Has& has) {
  std::vector<Node> nodes;
  std::vector<size_t> open;  // nodes on the path to the last token
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes[open.back()].size = static_cast<uint32_t>(nodes.size() - open.back());
    }
  };
  std::string_view last;
  for (const Token& token : tokens) {
    if (!has(token.id)) continue;
    const std::string_view bytes = token.bytes;
    size_t common = 0;
    while (common < last.size() && common < bytes.size() && last[common] == bytes[common]) ++common;
    common = std::min(common, bytes.size() - 1);  // equal bytes get a node of their own
    close_to(common);
    for (size_t i = common; i < bytes.size(); ++i) {
      open.push_back(nodes.size());
      nodes.push_back({1, -1, static_cast<uint16_t>(i + 1), static_cast<uint8_t>(bytes[i])});
    }
    nodes.back().token = token.id;
    last = bytes;
  }
  close_to(0);
  nodes.shrink_to_fit();
  return nodes;
}

// Calls `at` with each node that `text` passes and its depth, from the root down.
void Descend(const std::vector<Node>& nodes, std::string_view text,
             FunctionRef<void(size_t, size_t)> at) {
  size_t begin = 0, end = nodes.size();  // the nodes below the one reached
  for (size_t depth = 1; depth <= text.size() && begin < end; ++depth) {
    // Equal tokens have nodes of their own, and only the last of these has more below it.
    const size_t first = begin, last = end;
    begin = end = 0;
    for (size_t i = first; i < last; i += nodes[i].size) {
      if (nodes[i].byte != static_cast<uint8_t>(text[depth - 1])) continue;
      at(i, depth);
      begin = i + 1;
      end = i + nodes[i].size;
    }
  }
}

}  // namespace

Vocabulary::Impl::Impl(std::span<const std::string> token_bytes) : size_(token_bytes.size()) {
  std::vector<Token> tokens;
  tokens.reserve(size_);
  start_.reserve(size_ + 1);
  for (std::vector<uint32_t>& mask : masks_) mask.assign((size_ + 31) / 32, 0);
  for (size_t t = 0; t < size_; ++t) {
    const std::string& bytes = token_bytes[t];
    start_.push_back(static_cast<uint32_t>(text_.size()));
    if (bytes.empty() || bytes.size() > kMaxTokenBytes) continue;
    text_ += bytes;
    max_depth_ = std::max(max_depth_, bytes.size());
    const PlainText plain = Classify(bytes);
    tokens.emplace_back(bytes, static_cast<int32_t>(t));
    if (plain == PlainText::kShort) masks_[1][t / 32] |= uint32_t{1} << (t % 32);
    if (plain != PlainText::kNone) masks_[2][t / 32] |= uint32_t{1} << (t % 32);
  }
  start_.push_back(static_cast<uint32_t>(text_.size()));
  std::sort(tokens.begin(), tokens.end());
  for (size_t i = 0; i < tries_.size(); ++i) {
    tries_[i] = MakeTrie(
        tokens, [&](int32_t token) { return (masks_[i][token / 32] >> token % 32 & 1) == 0; });
  }
}

size_t Vocabulary::Impl::memory() const {
  size_t bytes = text_.capacity() + start_.capacity() * sizeof(uint32_t);
  for (const std::vector<Node>& trie : tries_) bytes += trie.capacity() * sizeof(Node);
  for (const std::vector<uint32_t>& mask : masks_) bytes += mask.capacity() * sizeof(uint32_t);
  return bytes;
}

std::shared_ptr<const Vocabulary> Vocabulary::Make(std::span<const std::string> token_bytes) {
  return std::make_shared<const Vocabulary>(std::make_unique<const Impl>(token_bytes));
}

Vocabulary::Vocabulary(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Vocabulary::~Vocabulary() = default;
size_t Vocabulary::size() const { return impl_->size(); }
size_t Vocabulary::bytes() const { return impl_->memory(); }

void Vocabulary::ForEachStart(std::string_view text, FunctionRef<void(int32_t)> found) const {
  const std::vector<Node>& nodes = impl_->TrieWithout(PlainText::kNone);
  Descend(nodes, text, [&](size_t node, size_t) {
    if (nodes[node].token >= 0) found(nodes[node].token);
  });
}

void Vocabulary::ForEachWithPrefix(std::string_view text, FunctionRef<void(int32_t)> found) const {
  const std::vector<Node>& nodes = impl_->TrieWithout(PlainText::kNone);
  Descend(nodes, text, [&](size_t node, size_t depth) {
    if (depth < text.size()) return;
    for (size_t i = node; i < node + nodes[node].size; ++i) {
      if (nodes[i].token >= 0) found(nodes[i].token);
    }
  });
}

}  // namespace tokamak
