// Mistral's tekken.json.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// The vocabulary and the pipeline: special tokens come first, so that an id is a rank plus their
// number. Of the ranks only as many as config.default_vocab_size leaves room for are taken.
// `special` has <unk>, <s>, </s> and <pad>; with add_bos.
//
// kUnimplemented for settings and versions that are not known here, kInvalidArgument for what is
// malformed. Messages begin with `source` and the place: "tekken.json: vocab[7]: ...".
Result<VocabSpec> ParseTekken(std::string_view json, const std::string& source);

}  // namespace tokamak
