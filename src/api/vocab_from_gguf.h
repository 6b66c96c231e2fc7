// The tokenizer's vocabulary out of a GGUF file's metadata (tokenizer.ggml.*).
#pragma once

#include "tokamak/status.h"
#include "tokenizer/vocab.h"
#include "weights/gguf.h"

namespace tokamak {

// kNotFound or kDataLoss for missing or mistyped metadata, kUnimplemented for a kind of tokenizer
// that is not supported; all name the file and the key. What the values mean together is checked
// by Tokenizer::Create.
Result<VocabSpec> VocabFromGguf(const GgufFile& file);

}  // namespace tokamak
