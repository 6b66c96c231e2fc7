// A checkpoint's tokenizer alone.
#pragma once

#include <memory>
#include <string>

#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

namespace tokamak {

// Reads metadata only. kUnimplemented when the file brings no tokenizer.
Result<std::shared_ptr<const Tokenizer>> OpenTokenizer(const std::string& path);
Result<std::shared_ptr<const Tokenizer>> MakeTokenizer(const GgufFile& file);

}  // namespace tokamak
