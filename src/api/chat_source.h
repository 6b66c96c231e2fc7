// The part of a checkpoint that conversations need: chat templates and special tokens.
#pragma once

#include <string>

#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace tokamak {

struct ChatSource {
  std::string chat_template;  // Jinja; empty: there is none
  std::string tool_template;  // the same for conversations with tools; empty: the one above
  std::string bos_token;      // spellings; empty: there is none
  std::string eos_token;

  const std::string& TemplateFor(bool with_tools) const {
    return with_tools && !tool_template.empty() ? tool_template : chat_template;
  }
};

ChatSource MakeChatSource(const GgufFile& file, const Tokenizer& tokenizer);
// The same for a checkpoint of either kind. Fails when its files cannot be read.
Result<ChatSource> MakeChatSource(const Checkpoint& checkpoint, const Tokenizer& tokenizer);
// Reads metadata only. kUnimplemented when the file brings no tokenizer.
Result<ChatSource> OpenChatSource(const std::string& path);

}  // namespace tokamak
