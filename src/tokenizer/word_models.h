// The models of a tokenizer.json: a piece of text, already normalized and split, to ids.
#pragma once

#include <memory>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Models of `spec.pipeline`, which must be there; they keep views of `spec.tokens`, which must
// outlive them. kInvalidArgument for merges and unknown tokens that are not in the vocabulary.

// `bytes`: pieces are bytes, not yet spelled in GPT-2's alphabet; the vocabulary must have a token
// for each.
Result<std::unique_ptr<const TextModel>> CreateBpeWords(const VocabSpec& spec, bool bytes);
Result<std::unique_ptr<const TextModel>> CreateUnigramWords(const VocabSpec& spec);
Result<std::unique_ptr<const TextModel>> CreateWordPieceWords(const VocabSpec& spec);

// Whether the model has a token for each byte in GPT-2's alphabet.
bool HasByteAlphabet(const VocabSpec& spec);

}  // namespace tokamak
