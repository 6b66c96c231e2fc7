// Tokens with a role, and tokens that are found in text as they stand.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Fills in what checkpoints leave out, by the names that models give such tokens: end of turn, end
// of message, and the type of tokens that only look like text ("<|im_end|>" stored as normal).
// Expects one type per token. Returns the ids after which generation stops, ascending.
std::vector<int32_t> ResolveSpecialTokens(VocabSpec& spec);

// Finds special tokens in text: leftmost first, at each place the longest.
class SpecialTokenMatcher {
 public:
  // Longer special tokens are refused, which bounds the time to O(text × this).
  static constexpr size_t kMaxTokenBytes = 1024;

  static Result<SpecialTokenMatcher> Create(const VocabSpec& spec);

  // Calls `on_text` for what lies between tokens (never empty) and `on_token` for the tokens, in
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
