// SentencePiece's byte-pair encoding (Kudo and Richardson 2018, arXiv:1808.06226): the pair whose
// merged token scores highest is merged first; characters that no token covers become bytes.
#pragma once

#include <memory>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// The model keeps views of `spec.tokens`, which must outlive it. With a pipeline it gets text that
// is normalized already, never merges a user-defined token that stands in it, and takes an unused
// token apart again, as SentencePiece's own models have it. Fails if there is neither an unknown
// token nor byte tokens to fall back on.
Result<std::unique_ptr<const TextModel>> CreateSentencePieceBpe(const VocabSpec& spec);

}  // namespace tokamak
