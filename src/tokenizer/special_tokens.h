// Tokens with a role, and tokens found verbatim in text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Completes what checkpoints leave out, by known token names: end of turn, end of message, and the
// type of special tokens stored as normal ones ("<|im_end|>"). Requires one type per token. Returns
// the ids that end generation, ascending.
std::vector<int32_t> ResolveSpecialTokens(VocabSpec& spec);

// Finds special tokens in text. Matches are leftmost, then longest.
class SpecialTokenMatcher {
 public:
  // Bounds the time to O(text × kMaxTokenBytes).
  static constexpr size_t kMaxTokenBytes = 1024;

  static Result<SpecialTokenMatcher> Create(const VocabSpec& spec);

  // Calls `on_token` for each token found and `on_text` for the text between (never empty), in
  // order. User-defined tokens are always found, control and unknown ones only with
  // `parse_special`. Stops at the first error.
  Status Partition(std::string_view text, bool parse_special,
                   FunctionRef<Status(std::string_view)> on_text,
                   FunctionRef<void(int32_t)> on_token) const;

 private:
  ByteTrie user_defined_;
  ByteTrie all_;
  std::vector<int32_t> lstrip_;  // ascending
  std::vector<int32_t> rstrip_;
};

}  // namespace tokamak
