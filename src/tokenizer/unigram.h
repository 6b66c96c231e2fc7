// Unigram language model: the most likely segmentation of the text into tokens (Kudo 2018,
// arXiv:1804.10959), after SentencePiece's normalization.
#pragma once

#include <memory>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Fails on a malformed charsmap, a score that is not a number, a token that is too long, or if
// there is neither an unknown token nor byte tokens.
Result<std::unique_ptr<const TextModel>> CreateUnigram(const VocabSpec& spec);

}  // namespace tokamak
