// An upper bound for the bytes of text per token. With it a text's length gives a lower bound for
// its tokens before it is tokenized.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/vocab.h"

namespace tokamak {

// Some vocabularies have no bound, or none for some bytes: a run of unknown characters may be one
// token or none, normalizers may drop characters, and tokens may absorb the white space next to
// them.
struct BytesPerToken {
  size_t most = 0;                  // at most this many counted bytes per token; 0: no bound
  std::array<bool, 256> counted{};  // bytes that cannot vanish from a text

  // A lower bound for the tokens of any encoding of `text`.
  size_t LeastTokens(std::string_view text) const;
};

// Requires a checked spec with a type for each token.
BytesPerToken BoundBytesPerToken(const VocabSpec& spec);

}  // namespace tokamak
