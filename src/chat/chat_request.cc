#include <utility>

#include "base/error.h"
#include "chat/chat_template.h"
#include "chat/prepare_messages.h"
#include "tokamak/chat.h"

namespace tokamak {

Result<Request> MakeChatRequest(const ModelInfo& model, const std::vector<ChatMessage>& messages) {
  ASSIGN_OR_RETURN(const ChatTemplate chat,
                   ChatTemplate::Parse(model.chat_template, model.bos_token, model.eos_token));
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    list.push_back(MakeMessage(message.role, message.content));
  }
  ChatInput input;
  input.messages = PrepareMessages(jinja::Value::List(std::move(list)), ProbeTemplate(chat));
  Request request;
  ASSIGN_OR_RETURN(request.prompt, chat.Render(input));
  request.add_special_tokens = false;  // the template spells them
  request.parse_special_tokens = true;
  return request;
}

}  // namespace tokamak
