// Small vocabularies of each kind, for tests and fuzzers.
#pragma once

#include <string_view>
#include <vector>

#include "tokenizer/vocab.h"

namespace tokamak::testing {

// 256 bytes and merges that build a few English words, one with an accent, and runs of spaces; then
// "<|begin|>" (bos), "<|im_end|>" (eos) and the user-defined "<tool>" and "<tool><call>".
VocabSpec TinyBytePairs(std::string_view pre_tokenizer = "smollm");
// Byte-pair merges of characters, spaces as ▁, byte tokens for the rest (Gemma 4's shape).
VocabSpec TinyCharacterPairs();
// SentencePiece BPE: <unk>, <s>, </s>, 256 byte tokens, pieces with scores.
VocabSpec TinySentencePiece();
// Unigram with a charsmap that maps ﬁ to fi and U+3000 to a space; no byte tokens.
VocabSpec TinyUnigram();
VocabSpec TinyWordPiece();
std::vector<VocabSpec> AllTinyVocabs();

}  // namespace tokamak::testing
