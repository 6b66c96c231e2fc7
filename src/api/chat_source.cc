#include "api/chat_source.h"

#include "api/open_tokenizer.h"
#include "base/error.h"

namespace tokamak {

ChatSource MakeChatSource(const GgufFile& file, const Tokenizer& tokenizer) {
  ChatSource chat;
  const GgufMetadata& metadata = file.metadata();
  if (metadata.Has("tokenizer.chat_template")) {
    Result<std::string> text = metadata.String("tokenizer.chat_template");
    if (text.ok()) chat.chat_template = *std::move(text);
  }
  chat.bos_token = std::string(tokenizer.TokenPiece(tokenizer.special().bos));
  chat.eos_token = std::string(tokenizer.TokenPiece(tokenizer.special().eos));
  return chat;
}

Result<ChatSource> OpenChatSource(const std::string& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, MakeTokenizer(*file));
  return MakeChatSource(*file, *tokenizer);
}

}  // namespace tokamak
