#include "cli/conversation.h"

#include "base/error.h"

namespace tokamak::cli {

Conversation::Conversation(const ModelInfo& model, std::string system)
    : system_(std::move(system)) {
  Result<ChatTemplate> chat =
      ChatTemplate::Parse(model.chat_template, model.bos_token, model.eos_token);
  if (chat.ok()) {
    traits_ = ProbeTemplate(*chat);
    template_ = *std::move(chat);
  } else {
    note_ = std::string(chat.status().message());
  }
}

void Conversation::SetSystem(std::string system) {
  system_ = std::move(system);
  messages_.clear();
}

bool Conversation::DropLast() {
  if (messages_.empty()) return false;
  messages_.pop_back();
  return true;
}

void Conversation::Clear() { messages_.clear(); }

Result<Request> Conversation::MakeRequest(const SamplingParams& sampling) const {
  Request request;
  request.sampling = sampling;
  request.parse_special_tokens = true;
  if (!template_) {
    request.prompt = messages_.empty() ? std::string() : messages_.back().content;
    return request;
  }
  std::vector<jinja::Value> messages;
  if (!system_.empty()) messages.push_back(MakeMessage("system", system_));
  for (const Message& message : messages_) {
    messages.push_back(MakeMessage(message.role, message.content));
  }
  ChatInput input;
  input.messages = PrepareMessages(jinja::Value::List(std::move(messages)), traits_);
  ASSIGN_OR_RETURN(request.prompt, template_->Render(input));
  request.add_special_tokens = false;  // the template spells them
  return request;
}

}  // namespace tokamak::cli
