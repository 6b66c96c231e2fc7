// Tokens that a tokenizer.json adds to its model, found verbatim in text.
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
    std::string_view text;  // only read by Create
    AddedToken token;
  };
  AddedTokenMatcher() = default;
  // kInvalidArgument if a token is too long.
  static Result<AddedTokenMatcher> Create(const std::vector<Entry>& entries);

  // Calls `on_token` for each token found and `on_text` for the text between (never empty; the flag
  // says whether it begins `text`), in order. Matches are leftmost, then longest. Special tokens
  // are found only with `parse_special`.
  Status Partition(std::string_view text, bool parse_special,
                   FunctionRef<Status(std::string_view, bool)> on_text,
                   FunctionRef<void(int32_t)> on_token) const;

 private:
  const AddedToken& Find(int32_t id) const;

  ByteTrie plain_, all_;
  std::vector<AddedToken> tokens_;  // ordered by id
};

}  // namespace tokamak
