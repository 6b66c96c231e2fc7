// SentencePiece's byte-pair encoding (Kudo and Richardson 2018, arXiv:1808.06226): merges the pair
// whose result scores highest first. Characters that no token covers become bytes.
#pragma once

#include <memory>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Keeps views of `spec.tokens`, which must outlive the model. If the pipeline's `sentencepiece` is
// set, it never merges user-defined tokens found in the text, and splits unused tokens again. Fails
// if there is neither an unknown token nor byte tokens.
Result<std::unique_ptr<const TextModel>> CreateSentencePieceBpe(const VocabSpec& spec);

}  // namespace tokamak
