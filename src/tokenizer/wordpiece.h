// WordPiece as in BERT (Devlin et al. 2019, arXiv:1810.04805): clean the text, split it into words,
// then take the longest token at each place of a word.
#pragma once

#include <memory>

#include "tokamak/status.h"
#include "tokenizer/text_model.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Tokens that begin a word are spelled with a leading ▁, others without. Fails if there is no
// unknown token.
Result<std::unique_ptr<const TextModel>> CreateWordPiece(const VocabSpec& spec);

}  // namespace tokamak
