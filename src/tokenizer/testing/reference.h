// Slow tokenizers written from the definitions, to compare the fast ones with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/gguf_vocab.h"

namespace tokamak::testing {

// Byte-pair merges of one word: merges the best-ranked pair, leftmost first, until none is left.
// O(n^2).
std::vector<int32_t> SlowBytePairs(const GgufVocab& spec, std::string_view word);
// SentencePiece BPE of text with escaped spaces: the best-scoring pair first, leftmost first.
// O(n^2).
std::vector<int32_t> SlowSentencePiece(const GgufVocab& spec, std::string_view escaped);
// The highest score of any segmentation of the text, by trying all. `unknown` is the score of a
// character that is not a token.
double BestUnigramScore(const GgufVocab& spec, std::string_view escaped, double unknown);

}  // namespace tokamak::testing
