// Mistral's tekken.json.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Returns the vocabulary and pipeline. Special tokens come first, so an id is their number plus the
// rank. Only as many ranks are used as config.default_vocab_size leaves room for. `special` has
// <unk>, <s>, </s> and <pad>; add_bos is set.
//
// kUnimplemented for unknown settings and versions, kInvalidArgument for malformed files. Messages
// begin with `source` and the place: "tekken.json: vocab[7]: ...".
Result<VocabSpec> ParseTekken(std::string_view json, const std::string& source);

}  // namespace tokamak
