// The pipeline of a vocabulary as GGUF files store it.
#pragma once

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Fills `spec.pipeline` from the other fields, which must have one type and one score per token,
// and completes types, roles and end tokens by known names. kUnimplemented for an unknown
// pre-tokenizer; kInvalidArgument for missing or malformed merges and for a begin or end token that
// is wanted but missing.
Status MakeGgufPipeline(VocabSpec& spec);

}  // namespace tokamak
