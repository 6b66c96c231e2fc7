// Small vocabularies of each kind, for tests and fuzzers.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/gguf_vocab.h"
#include "tokenizer/tokenizer.h"

namespace tokamak::testing {

// 256 bytes and merges that build a few English words, one with an accent, and runs of spaces; then
// "<|begin|>" (bos), "<|im_end|>" (eos) and the user-defined "<tool>" and "<tool><call>".
GgufVocab TinyBytePairs(std::string_view pre_tokenizer = "smollm");
// Byte-pair merges of characters, spaces as ▁, byte tokens for the rest (Gemma 4's shape).
GgufVocab TinyCharacterPairs();
// SentencePiece BPE: <unk>, <s>, </s>, 256 byte tokens, pieces with scores.
GgufVocab TinySentencePiece();
// Unigram with a charsmap that maps ﬁ to fi and U+3000 to a space; no byte tokens.
GgufVocab TinyUnigram();
GgufVocab TinyWordPiece();
std::vector<GgufVocab> AllTinyVocabs();

Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(GgufVocab vocab);

}  // namespace tokamak::testing
