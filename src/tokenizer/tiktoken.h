// tiktoken's files (qwen.tiktoken, tiktoken.model, Llama 3's tokenizer.model): lines of a token's
// bytes in base64 and its rank.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// The vocabulary and the pipeline. A file of ranks says neither how text is split nor what its
// special tokens are: both are known for the vocabularies of tiktoken_families.h, which are told
// apart by their tokens, or by `tokenizer_class`, the name in tokenizer_config.json (or empty).
// `special` and add_bos are those of the family.
//
// kUnimplemented for a vocabulary of no known family, kInvalidArgument for a malformed line, a rank
// or token that occurs twice, and ranks with holes. Messages begin with `source` and the line.
Result<VocabSpec> ParseTiktoken(std::string_view text, const std::string& source,
                                std::string_view tokenizer_class);

// Whether `text` begins as such a file does.
bool IsTiktoken(std::string_view text);

}  // namespace tokamak
