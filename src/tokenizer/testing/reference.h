// Slow tokenizers, written from the definitions, to compare the fast ones with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/vocab.h"

namespace tokamak::testing {

// Byte-pair merges of one word: the best-ranked pair, leftmost first, until none is left. O(n^2).
std::vector<int32_t> SlowBytePairs(const VocabSpec& spec, std::string_view word);
// SentencePiece BPE of text with spaces escaped: the best-scoring pair, leftmost first. O(n^2).
std::vector<int32_t> SlowSentencePiece(const VocabSpec& spec, std::string_view escaped);
// The highest score that any segmentation of the text has, by trying all of them. `unknown`: the
// score of a character that is no token.
double BestUnigramScore(const VocabSpec& spec, std::string_view escaped, double unknown);

}  // namespace tokamak::testing
