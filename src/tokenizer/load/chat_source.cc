#include "tokenizer/load/chat_source.h"

#include <sys/stat.h>

#include "base/error.h"
#include "tokenizer/load/open_tokenizer.h"
#include "tokenizer/load/vocab_from_hf.h"

namespace tokamak {

ChatSource MakeChatSource(const GgufFile& file, const Tokenizer& tokenizer) {
  ChatSource chat;
  const GgufMetadata& metadata = file.metadata();
  const auto read = [&](const char* key, std::string& to) {
    if (!metadata.Has(key)) return;
    Result<std::string> text = metadata.String(key);
    if (text.ok()) to = *std::move(text);
  };
  read("tokenizer.chat_template", chat.chat_template);
  // Named templates have their own keys, which tokenizer.chat_templates lists.
  if (chat.chat_template.empty()) read("tokenizer.chat_template.default", chat.chat_template);
  read("tokenizer.chat_template.tool_use", chat.tool_template);
  chat.bos_token = std::string(tokenizer.TokenPiece(tokenizer.special().bos));
  chat.eos_token = std::string(tokenizer.TokenPiece(tokenizer.special().eos));
  return chat;
}

namespace {

Result<ChatSource> MakeHfChatSource(const std::string& folder, const Tokenizer& tokenizer) {
  ChatSource chat;
  ASSIGN_OR_RETURN(HfChatTemplates templates, ReadHfChatTemplates(folder));
  chat.chat_template = std::move(templates.chat);
  chat.tool_template = std::move(templates.tools);
  chat.bos_token = std::string(tokenizer.TokenPiece(tokenizer.special().bos));
  chat.eos_token = std::string(tokenizer.TokenPiece(tokenizer.special().eos));
  return chat;
}

}  // namespace

Result<ChatSource> MakeChatSource(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  if (checkpoint.gguf != nullptr) return MakeChatSource(*checkpoint.gguf, tokenizer);
  return MakeHfChatSource(checkpoint.directory, tokenizer);
}

Result<ChatSource> OpenChatSource(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, OpenTokenizer(path));
    return MakeHfChatSource(path, *tokenizer);
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, MakeTokenizer(*file));
  return MakeChatSource(*file, *tokenizer);
}

}  // namespace tokamak
