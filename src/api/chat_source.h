// What a checkpoint brings for conversations.
#pragma once

#include <string>

#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf.h"

namespace tokamak {

struct ChatSource {
  std::string chat_template;  // Jinja; empty: there is none
  std::string bos_token;      // spellings; empty: there is none
  std::string eos_token;
};

ChatSource MakeChatSource(const GgufFile& file, const Tokenizer& tokenizer);
// Reads metadata only. kUnimplemented when the file brings no tokenizer.
Result<ChatSource> OpenChatSource(const std::string& path);

}  // namespace tokamak
