// A tokenizer's own file, of any of the formats that are read.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Of a tokenizer.json, tekken.json, SentencePiece model or file of tiktoken's ranks: which one it
// is is told by the content, never by the name. `tokenizer_class` is what tokenizer_config.json
// calls it, or empty. Special tokens and what is added around a text are those of the file or its
// family; of a tokenizer.json, the unknown token and the template. Errors as in the formats'
// headers; kUnimplemented when it is none of them. Messages begin with `source`.
Result<VocabSpec> ParseTokenizerFile(std::string_view bytes, const std::string& source,
                                     std::string_view tokenizer_class = {});

}  // namespace tokamak
