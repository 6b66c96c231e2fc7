// Reads a tokenizer's own file in any supported format.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Parses a tokenizer.json, tekken.json, SentencePiece model or tiktoken rank file. The content, not
// the name, decides which it is. `tokenizer_class` is the name in tokenizer_config.json, or empty.
// Special tokens and the tokens around a text come from the file or its family; a tokenizer.json
// gives only the unknown token and the template. Errors are those of the formats' headers;
// kUnimplemented for other formats. Messages begin with `source`.
Result<VocabSpec> ParseTokenizerFile(std::string_view bytes, const std::string& source,
                                     std::string_view tokenizer_class = {});

}  // namespace tokamak
