#include "cli/conversation.h"

namespace tokamak::cli {

Conversation::Conversation(const ModelInfo& model, std::string system)
    : system_(std::move(system)) {
  Result<ChatMl> chat = ChatMl::FromTemplate(model.chat_template);
  if (chat.ok()) {
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

Request Conversation::MakeRequest(const SamplingParams& sampling) const {
  Request request;
  request.sampling = sampling;
  request.parse_special_tokens = true;
  if (!template_) {
    request.prompt = messages_.empty() ? std::string() : messages_.back().content;
    return request;
  }
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.insert(messages.end(), messages_.begin(), messages_.end());
  request.prompt = template_->Render(messages, /*add_generation_prompt=*/true);
  request.add_special_tokens = false;  // the template spells them
  return request;
}

}  // namespace tokamak::cli
