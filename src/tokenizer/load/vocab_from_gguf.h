// Reads the tokenizer's vocabulary from a GGUF file's metadata (tokenizer.ggml.*).
#pragma once

#include "tokamak/status.h"
#include "tokenizer/gguf_vocab.h"
#include "weights/gguf.h"

namespace tokamak {

// kNotFound or kDataLoss for missing or mistyped metadata, kUnimplemented for an unsupported
// tokenizer; errors name the file and the key. The vocabulary's consistency is checked later.
Result<GgufVocab> VocabFromGguf(const GgufFile& file);

}  // namespace tokamak
