// The models, which turn a normalized and split piece of text into ids.
#pragma once

#include <memory>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// All keep views of `spec.tokens`, which must outlive them.
// kInvalidArgument if a merge or the unknown token is not in the vocabulary.

// `bytes`: pieces are plain bytes, not spelled in GPT-2's alphabet. Bytes without a token are then
// dropped.
Result<std::unique_ptr<const TextModel>> CreateBpeWords(const VocabSpec& spec, bool bytes);
Result<std::unique_ptr<const TextModel>> CreateUnigramWords(const VocabSpec& spec);
Result<std::unique_ptr<const TextModel>> CreateWordPieceWords(const VocabSpec& spec);

// Whether the model has a token for each byte in GPT-2's alphabet.
bool HasByteAlphabet(const VocabSpec& spec);

}  // namespace tokamak
