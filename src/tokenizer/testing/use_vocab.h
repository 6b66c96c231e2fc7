// For fuzzers: a vocabulary as a parser gave it, used if it is accepted.
#pragma once

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak::testing {

// Encodes and decodes text of many kinds; aborts where an id is outside the vocabulary or cannot be
// decoded.
void UseVocab(Result<VocabSpec> vocab);

}  // namespace tokamak::testing
