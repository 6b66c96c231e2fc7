// A checkpoint's tokenizer alone.
#pragma once

#include <memory>
#include <string>

#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace tokamak {

// Of a .gguf file, a Hugging Face directory, which needs no weights for this, or a tokenizer's own
// file (tokenizer_file.h). Reads metadata only. kUnimplemented when it brings no tokenizer.
Result<std::shared_ptr<const Tokenizer>> OpenTokenizer(const std::string& path);
Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file);
// Null when the checkpoint brings none.
Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const Checkpoint& checkpoint);

}  // namespace tokamak
