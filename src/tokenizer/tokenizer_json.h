// Hugging Face's tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Returns the vocabulary and pipeline that `json` describes. `special` has only the unknown token:
// the tokens that begin and end a text are in tokenizer_config.json.
//
// Each component and setting is either implemented or refused by name (kUnimplemented). Malformed
// files are kInvalidArgument. Messages begin with `source` and the place:
// "tokenizer.json: pre_tokenizer.pretokenizers[0].type: ...". Truncation and padding matter only
// for training and are ignored.
Result<VocabSpec> ParseTokenizerJson(std::string_view json, const std::string& source);

}  // namespace tokamak
