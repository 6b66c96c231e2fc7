// tiktoken's files (qwen.tiktoken, tiktoken.model, Llama 3's tokenizer.model): one line per token,
// with its bytes in base64 and its rank.
#pragma once

#include <string>
#include <string_view>

#include "tokamak/status.h"
#include "tokenizer/vocab.h"

namespace tokamak {

// Returns the vocabulary and pipeline. The file itself says neither how text is split nor what the
// special tokens are; tiktoken_families.h knows both. The family is recognized by its tokens, or by
// `tokenizer_class`, the name in tokenizer_config.json (or empty). `special` and add_bos are the
// family's.
//
// kUnimplemented for an unknown family, kInvalidArgument for a malformed line, a duplicate rank or
// token, and missing ranks. Messages begin with `source` and the line.
Result<VocabSpec> ParseTiktoken(std::string_view text, const std::string& source,
                                std::string_view tokenizer_class);

// Whether `text` begins like such a file.
bool IsTiktoken(std::string_view text);

}  // namespace tokamak
