// Turns SamplingParams::bad_words into token ids.
#pragma once

#include "tokamak/sampling_params.h"
#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"

namespace tokamak {

// Appends the tokens of each of params->bad_words to bad_words_ids and clears bad_words. As vLLM
// does, it forbids a word without and with a space before it, the latter only if the space belongs
// to its first token. kInvalidArgument, starting with "bad_words", if a word has no tokens or there
// is no tokenizer.
Status EncodeBadWords(const Tokenizer* tokenizer, SamplingParams* params);

}  // namespace tokamak
