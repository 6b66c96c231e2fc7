// Hugging Face's tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// The vocabulary and the pipeline that `json` describes. Which tokens begin and end a text is not
// in that file but in tokenizer_config.json: `special` has the unknown token alone.
//
// Every component and every setting of one is either understood or refused by its name
// (kUnimplemented); what is malformed is kInvalidArgument. Messages begin with `source` and the
// place: "tokenizer.json: pre_tokenizer.pretokenizers[0].type: ...". Truncation and padding are of
// training and left out.
Result<VocabSpec> ParseTokenizerJson(std::string_view json, const std::string& source);

}  // namespace tokamak
