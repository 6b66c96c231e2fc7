// For fuzzers: uses a vocabulary that a parser returned, if it is accepted.
#pragma once

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak::testing {

// Encodes and decodes many kinds of text. Aborts if an id is outside the vocabulary or cannot be
// decoded.
void UseVocab(Result<VocabSpec> vocab);

}  // namespace tokamak::testing
