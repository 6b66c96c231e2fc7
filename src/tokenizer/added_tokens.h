// Tokens that a tokenizer.json adds to its model: found in text as they stand.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokamak/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/pipeline_spec.h"

namespace tokamak {

class AddedTokenMatcher {
 public:
  struct Entry {
    std::string_view text;  // not kept
    AddedToken token;
  };
  AddedTokenMatcher() = default;
  // kInvalidArgument for a token that is too long.
  static Result<AddedTokenMatcher> Create(const std::vector<Entry>& entries);

  // Calls `on_text` for what lies between tokens (never empty, with whether it begins `text`) and
  // `on_token` for the tokens, in order; leftmost first, at each place the longest. Special ones
  // are found only with `parse_special`.
  Status Partition(std::string_view text, bool parse_special,
                   FunctionRef<Status(std::string_view, bool)> on_text,
                   FunctionRef<void(int32_t)> on_token) const;

 private:
  const AddedToken& Find(int32_t id) const;

  ByteTrie plain_, all_;
  std::vector<AddedToken> tokens_;  // by ascending id
};

}  // namespace tokamak
