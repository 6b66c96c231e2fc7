// How much text a token can stand for at most: a text's length then says how many tokens it has at
// least, long before it is tokenized.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/vocab.h"

namespace tokamak {

// Runs of unknown characters may be one token or none, normalizers may take characters away, and
// some tokens take all white space beside them: no bound holds for such a vocabulary, or not for
// all bytes.
struct BytesPerToken {
  size_t most = 0;                  // of those bytes that count; 0: there is no bound
  std::array<bool, 256> counted{};  // the bytes of a text that cannot vanish

  // No encoding of the text has fewer tokens.
  size_t LeastTokens(std::string_view text) const;
};

// Requires a checked spec whose types are complete.
BytesPerToken BoundBytesPerToken(const VocabSpec& spec);

}  // namespace tokamak
