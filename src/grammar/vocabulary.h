// The tokens' bytes as tries, and which tokens are plain text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace tokamak {

// Sets of tokens that most strings of JSON may hold, so that a mask needs no walk over them. All
// their tokens are whole characters of UTF-8 without quotation marks, backslashes and controls.
enum class PlainText : uint8_t {
  kNone,
  kShort,  // of at most kShortCharacters
  kAll,
};
inline constexpr uint32_t kShortCharacters = 10;

class Vocabulary::Impl {
 public:
  // One step from the root towards tokens, in depth-first order. Tokens with equal bytes have nodes
  // of their own.
  struct Node {
    uint32_t size = 1;   // nodes of the subtree, this one included
    int32_t token = -1;  // ends here
    uint16_t depth = 1;  // bytes up to here
    uint8_t byte = 0;
  };

  explicit Impl(std::span<const std::string> token_bytes);

  size_t size() const { return size_; }
  std::string_view bytes_of(int32_t token) const {
    return std::string_view(text_).substr(start_[token], start_[token + 1] - start_[token]);
  }
  // The tokens that are not in the set.
  const std::vector<Node>& TrieWithout(PlainText set) const {
    return tries_[static_cast<size_t>(set)];
  }
  // The tokens of the set, as a mask. Empty for kNone.
  const std::vector<uint32_t>& Mask(PlainText set) const {
    return masks_[static_cast<size_t>(set)];
  }
  size_t max_depth() const { return max_depth_; }
  size_t memory() const;

 private:
  size_t size_ = 0;
  size_t max_depth_ = 0;
  std::string text_;
  std::vector<uint32_t> start_;
  std::array<std::vector<Node>, 3> tries_;
  std::array<std::vector<uint32_t>, 3> masks_;
};

}  // namespace tokamak
