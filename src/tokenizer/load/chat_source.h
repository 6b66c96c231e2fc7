// The parts of a checkpoint that conversations need: chat templates and special tokens.
#pragma once

#include <string>

#include "tokamak/status.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/gguf.h"

namespace tokamak {

struct ChatSource {
  std::string chat_template;  // Jinja; empty: none
  std::string tool_template;  // for conversations with tools; empty: use chat_template
  std::string bos_token;      // spellings; empty: none
  std::string eos_token;

  const std::string& TemplateFor(bool with_tools) const {
    return with_tools && !tool_template.empty() ? tool_template : chat_template;
  }
};

ChatSource MakeChatSource(const GgufFile& file, const Tokenizer& tokenizer);
// For a checkpoint in either format. Fails if its files cannot be read.
Result<ChatSource> MakeChatSource(const Checkpoint& checkpoint, const Tokenizer& tokenizer);
// Reads metadata only. kUnimplemented if the file has no tokenizer.
Result<ChatSource> OpenChatSource(const std::string& path);

}  // namespace tokamak
