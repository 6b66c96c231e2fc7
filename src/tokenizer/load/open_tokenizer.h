// Opening a checkpoint's tokenizer without its weights.
#pragma once

#include <memory>
#include <string>

#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace tokamak {

// `path` is a .gguf file, a Hugging Face directory (weights not needed), or a tokenizer's own file
// (tokenizer_file.h). Reads metadata only. kUnimplemented if there is no tokenizer.
Result<std::shared_ptr<const Tokenizer>> OpenTokenizer(const std::string& path);
Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file);
// Null if the checkpoint has no tokenizer.
Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const Checkpoint& checkpoint);

}  // namespace tokamak
